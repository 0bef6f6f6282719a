"""Those names of ``tf.feature_column`` that psflow has: what a model reads of raw features."""

from __future__ import annotations

from psflow.ps_runtime.feature_columns.categorical import (
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
    crossed_column,
    weighted_categorical_column,
)
from psflow.ps_runtime.feature_columns.dense import (
    bucketized_column,
    embedding_column,
    indicator_column,
    numeric_column,
    shared_embeddings,
)
from psflow.ps_runtime.feature_columns.sequences import (
    sequence_categorical_column_with_hash_bucket,
    sequence_categorical_column_with_identity,
    sequence_categorical_column_with_vocabulary_file,
    sequence_categorical_column_with_vocabulary_list,
    sequence_numeric_column,
)
from psflow.ps_runtime.model.feature_layers import input_layer, linear_model
from psflow.ps_runtime.model.sequence_layers import sequence_input_layer

__all__ = [
    "bucketized_column",
    "categorical_column_with_hash_bucket",
    "categorical_column_with_identity",
    "categorical_column_with_vocabulary_file",
    "categorical_column_with_vocabulary_list",
    "crossed_column",
    "embedding_column",
    "indicator_column",
    "input_layer",
    "linear_model",
    "numeric_column",
    "sequence_categorical_column_with_hash_bucket",
    "sequence_categorical_column_with_identity",
    "sequence_categorical_column_with_vocabulary_file",
    "sequence_categorical_column_with_vocabulary_list",
    "sequence_input_layer",
    "sequence_numeric_column",
    "shared_embeddings",
    "weighted_categorical_column",
]
