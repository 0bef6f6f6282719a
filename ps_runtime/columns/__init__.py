"""Turns the columns of records into features, and learns what this takes, such as vocabularies and means.

`Learner` takes the chunks of one scan of the training input and returns a `Preprocessing`, which is applied to every
input of the model and travels with it as plain data. Users describe columns by `ColumnOptions` and `LabelOptions`.

An exported model has a copy of this package: it imports numpy, errors and keys, and pyarrow where it is used.
"""
