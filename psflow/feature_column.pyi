from psflow.ps_runtime.feature_columns.categorical import (
    categorical_column_with_hash_bucket as categorical_column_with_hash_bucket,
)
from psflow.ps_runtime.feature_columns.categorical import (
    categorical_column_with_identity as categorical_column_with_identity,
)
from psflow.ps_runtime.feature_columns.categorical import (
    categorical_column_with_vocabulary_file as categorical_column_with_vocabulary_file,
)
from psflow.ps_runtime.feature_columns.categorical import (
    categorical_column_with_vocabulary_list as categorical_column_with_vocabulary_list,
)
from psflow.ps_runtime.feature_columns.categorical import crossed_column as crossed_column
from psflow.ps_runtime.feature_columns.categorical import weighted_categorical_column as weighted_categorical_column
from psflow.ps_runtime.feature_columns.dense import bucketized_column as bucketized_column
from psflow.ps_runtime.feature_columns.dense import embedding_column as embedding_column
from psflow.ps_runtime.feature_columns.dense import indicator_column as indicator_column
from psflow.ps_runtime.feature_columns.dense import numeric_column as numeric_column
from psflow.ps_runtime.feature_columns.dense import shared_embeddings as shared_embeddings
from psflow.ps_runtime.feature_columns.sequences import (
    sequence_categorical_column_with_hash_bucket as sequence_categorical_column_with_hash_bucket,
)
from psflow.ps_runtime.feature_columns.sequences import (
    sequence_categorical_column_with_identity as sequence_categorical_column_with_identity,
)
from psflow.ps_runtime.feature_columns.sequences import (
    sequence_categorical_column_with_vocabulary_file as sequence_categorical_column_with_vocabulary_file,
)
from psflow.ps_runtime.feature_columns.sequences import (
    sequence_categorical_column_with_vocabulary_list as sequence_categorical_column_with_vocabulary_list,
)
from psflow.ps_runtime.feature_columns.sequences import sequence_numeric_column as sequence_numeric_column
from psflow.ps_runtime.model.feature_layers import input_layer as input_layer
from psflow.ps_runtime.model.feature_layers import linear_model as linear_model
from psflow.ps_runtime.model.feature_layers import sequence_input_layer as sequence_input_layer
