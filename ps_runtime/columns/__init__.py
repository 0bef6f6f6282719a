"""The columns room: from the columns of records to features, and what is learned from them on the way.

`Learner` takes the chunks of one scan of the training input and returns a `Preprocessing`, which is applied to every
input of the model and travels with it as plain data. `ColumnOptions` and `LabelOptions` are what a user says of them.

An exported model has a copy of this room: it imports numpy, errors and keys, and pyarrow where it is used.
"""
