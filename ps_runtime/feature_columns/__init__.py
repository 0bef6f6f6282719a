"""The feature-columns room: descriptions of what a model reads of each raw feature, and their transformation.

`psflow.feature_column` makes the descriptions of `kinds`, which are frozen and plain. `Transformation` computes the
columns of a batch, with the functions that the columns of records are computed with.

An exported model has a copy of `kinds` and `transforming`: they import numpy, and pyarrow where it is used.
"""
