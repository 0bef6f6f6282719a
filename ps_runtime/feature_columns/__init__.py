"""Describes the feature columns of a model, and computes them from raw features.

`psflow.feature_column` makes the descriptions in `kinds`, which are frozen and plain. `Transformation` computes the
columns of a batch, with the same functions as the columns of records.

An exported model has a copy of `kinds` and `transforming`: they import numpy, and pyarrow where it is used.
"""
