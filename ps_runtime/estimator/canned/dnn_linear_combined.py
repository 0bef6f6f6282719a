"""Estimators of wide and deep models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from psflow.ps_runtime.estimator.canned.base import (
    CannedEstimator,
    Dropout,
    HiddenActivation,
    LabelVocabulary,
    NamesOrColumns,
    NumClasses,
    OptimizerOrName,
    classifier_faults,
    combiner_faults,
    head_faults,
    hidden_faults,
    optimizer_faults,
    optimizer_of,
    parts_faults,
    regressor_faults,
    units_faults,
)
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import as_list
from psflow.ps_runtime.feature_columns.kinds import Combiner
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.layers import ActivationFn
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.base import Head, LossReduction, WeightColumn
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.dnn_linear_combined import dnn_linear_combined_model
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.optimizers import Adagrad
from psflow.ps_runtime.specs.run_config import RunConfig

DEFAULT_DNN_OPTIMIZER = Adagrad(learning_rate=0.001)


class DNNLinearCombinedClassifier(CannedEstimator):
    """A linear model and a deep network whose outputs are added; softmax, or for two classes the logistic function.

    Parameters
    ----------
    dnn_hidden_units : sequence of int
        Units of each hidden layer of the deep part, starting at the input.
    linear_feature_columns, dnn_feature_columns : sequence of column or of str, optional
        The columns of a part, as for `LinearClassifier` and `DNNClassifier`, or names of features; for both parts or
        neither. By default each part reads all features.
    linear_optimizer : Optimizer or str, optional
        Trains the linear part; by default Ftrl with learning rate ``min(0.005, 1 / sqrt(number of its columns))``.
    dnn_optimizer : Optimizer or str
        Trains the deep part; by default Adagrad with learning rate 0.001.
    n_classes : int, optional
        See `DNNClassifier`.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Source of the initial values; see `Estimator`.
    weight_column : str, optional
        The feature that holds the weights of the examples; only for arrays. For tabular files use the
        ``weight`` of the input.
    label_vocabulary : sequence of str, optional
        The class names, where the labels of arrays are strings. For tabular files use the classes of the label.
    loss_reduction : Reduction
        Reduction of the losses of a batch to one number.
    linear_sparse_combiner : {"sum", "mean", "sqrtn"}
        See `LinearClassifier`.
    dnn_activation_fn, dnn_dropout
        `activation_fn` and `dropout` of the deep part; see `DNNClassifier`.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    The linear part is that of `LinearClassifier`, the deep part that of `DNNClassifier`: their variables have the same
    names. A feature of many ids belongs to the linear part, and also to the deep part if it has an embedding. Weights
    of the records, predictions and metrics are those of `DNNClassifier`.
    """

    def __init__(
        self,
        dnn_hidden_units: Annotated[
            Sequence[Annotated[int, Key("Units.", ge=1)]],
            Key("Units of each hidden layer of the deep part, the first layer first."),
        ],
        linear_feature_columns: Annotated[
            NamesOrColumns | None, Key("Names of the features that the linear part reads; null: all.")
        ] = None,
        linear_optimizer: Annotated[
            OptimizerOrName | None,
            Key("Trains the linear part; null: Ftrl, learning rate min(0.005, 1 / sqrt(number of its columns))."),
        ] = None,
        dnn_feature_columns: Annotated[
            NamesOrColumns | None, Key("Names of the features that the deep part reads; null: all.")
        ] = None,
        dnn_optimizer: Annotated[OptimizerOrName, Key("Trains the deep part.")] = DEFAULT_DNN_OPTIMIZER,
        n_classes: NumClasses = None,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        *,
        weight_column: WeightColumn = None,
        label_vocabulary: LabelVocabulary = None,
        loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE,
        linear_sparse_combiner: Combiner = "sum",
        dnn_activation_fn: HiddenActivation = "relu",
        dnn_dropout: Dropout = None,
    ) -> None:
        linear_columns, dnn_columns = as_list(linear_feature_columns), as_list(dnn_feature_columns)
        faults = [
            *units_faults(dnn_hidden_units, "dnn_hidden_units"),
            *hidden_faults(dnn_activation_fn, dnn_dropout, "dnn_"),
            *parts_faults(linear_columns, dnn_columns),
            *combiner_faults("linear_sparse_combiner", linear_sparse_combiner),
            *optimizer_faults(dnn_optimizer, "Adagrad(learning_rate=0.001)", "dnn_optimizer"),
            *classifier_faults(n_classes, weight_column, label_vocabulary, loss_reduction),
        ]
        if linear_optimizer is not None:
            faults += optimizer_faults(linear_optimizer, "Ftrl(learning_rate=0.005)", "linear_optimizer")
        check("DNNLinearCombinedClassifier", faults)
        params = {
            "dnn_hidden_units": [int(n) for n in dnn_hidden_units],
            "dnn_activation_fn": dnn_activation_fn,
            "dnn_dropout": dnn_dropout,
            "linear_feature_columns": linear_columns,
            "linear_sparse_combiner": linear_sparse_combiner,
            "linear_optimizer": optimizer_of(linear_optimizer),
            "dnn_feature_columns": dnn_columns,
            "dnn_optimizer": optimizer_of(dnn_optimizer),
        }
        head = ClassifierSpec(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(dnn_linear_combined_model, head, params, model_dir, config, warm_start_from)


class DNNLinearCombinedEstimator(CannedEstimator):
    """A linear model and a deep network whose outputs are added to give the logits of a head.

    Parameters
    ----------
    head : Head
        Interprets the logits, such as `MultiLabelHead`.
    dnn_hidden_units, linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer
        See `DNNLinearCombinedClassifier`.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Source of the initial values; see `Estimator`.
    linear_sparse_combiner : {"sum", "mean", "sqrtn"}
        See `LinearClassifier`.
    dnn_activation_fn, dnn_dropout
        `activation_fn` and `dropout` of the deep part; see `DNNClassifier`.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    Features and variables are those of `DNNLinearCombinedClassifier`; labels, weights, loss,
    predictions and metrics those of the head.
    """

    def __init__(
        self,
        head: Head,
        dnn_hidden_units: Sequence[int],
        linear_feature_columns: NamesOrColumns | None = None,
        linear_optimizer: OptimizerOrName | None = None,
        dnn_feature_columns: NamesOrColumns | None = None,
        dnn_optimizer: OptimizerOrName = DEFAULT_DNN_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        *,
        linear_sparse_combiner: Combiner = "sum",
        dnn_activation_fn: ActivationFn = "relu",
        dnn_dropout: float | None = None,
    ) -> None:
        linear_columns, dnn_columns = as_list(linear_feature_columns), as_list(dnn_feature_columns)
        faults = [
            *head_faults(head),
            *units_faults(dnn_hidden_units, "dnn_hidden_units"),
            *hidden_faults(dnn_activation_fn, dnn_dropout, "dnn_"),
            *parts_faults(linear_columns, dnn_columns),
            *combiner_faults("linear_sparse_combiner", linear_sparse_combiner),
            *optimizer_faults(dnn_optimizer, "Adagrad(learning_rate=0.001)", "dnn_optimizer"),
        ]
        if linear_optimizer is not None:
            faults += optimizer_faults(linear_optimizer, "Ftrl(learning_rate=0.005)", "linear_optimizer")
        check("DNNLinearCombinedEstimator", faults)
        params = {
            "dnn_hidden_units": [int(n) for n in dnn_hidden_units],
            "dnn_activation_fn": dnn_activation_fn,
            "dnn_dropout": dnn_dropout,
            "linear_feature_columns": linear_columns,
            "linear_sparse_combiner": linear_sparse_combiner,
            "linear_optimizer": optimizer_of(linear_optimizer),
            "dnn_feature_columns": dnn_columns,
            "dnn_optimizer": optimizer_of(dnn_optimizer),
        }
        super().__init__(dnn_linear_combined_model, head, params, model_dir, config, warm_start_from)


class DNNLinearCombinedRegressor(CannedEstimator):
    """A linear model and a deep network whose outputs are added, trained to predict numbers.

    Parameters
    ----------
    dnn_hidden_units : sequence of int
        Units of each hidden layer of the deep part, starting at the input.
    linear_feature_columns, dnn_feature_columns : sequence of column or of str, optional
        The columns of a part, as for `LinearClassifier` and `DNNClassifier`, or names of features; for both parts or
        neither. By default each part reads all features.
    linear_optimizer : Optimizer or str, optional
        Trains the linear part; by default Ftrl with learning rate ``min(0.005, 1 / sqrt(number of its columns))``.
    dnn_optimizer : Optimizer or str
        Trains the deep part; by default Adagrad with learning rate 0.001.
    label_dimension : int
        See `DNNRegressor`.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Source of the initial values; see `Estimator`.
    weight_column : str, optional
        The feature that holds the weights of the examples; only for arrays. For tabular files use the
        ``weight`` of the input.
    loss_reduction : Reduction
        Reduction of the losses of a batch to one number.
    linear_sparse_combiner : {"sum", "mean", "sqrtn"}
        See `LinearClassifier`.
    dnn_activation_fn, dnn_dropout
        `activation_fn` and `dropout` of the deep part; see `DNNClassifier`.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    The linear part is that of `LinearRegressor`, the deep part that of `DNNRegressor`: their variables have the same
    names. A feature of many ids belongs to the linear part, and also to the deep part if it has an embedding. Weights
    of the records, predictions and metrics are those of `DNNRegressor`.
    """

    def __init__(
        self,
        dnn_hidden_units: Annotated[
            Sequence[Annotated[int, Key("Units.", ge=1)]],
            Key("Units of each hidden layer of the deep part, the first layer first."),
        ],
        linear_feature_columns: Annotated[
            NamesOrColumns | None, Key("Names of the features that the linear part reads; null: all.")
        ] = None,
        linear_optimizer: Annotated[
            OptimizerOrName | None,
            Key("Trains the linear part; null: Ftrl, learning rate min(0.005, 1 / sqrt(number of its columns))."),
        ] = None,
        dnn_feature_columns: Annotated[
            NamesOrColumns | None, Key("Names of the features that the deep part reads; null: all.")
        ] = None,
        dnn_optimizer: Annotated[OptimizerOrName, Key("Trains the deep part.")] = DEFAULT_DNN_OPTIMIZER,
        label_dimension: Annotated[int, Key("Size of a label.", ge=1)] = 1,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        *,
        weight_column: WeightColumn = None,
        loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE,
        linear_sparse_combiner: Combiner = "sum",
        dnn_activation_fn: HiddenActivation = "relu",
        dnn_dropout: Dropout = None,
    ) -> None:
        linear_columns, dnn_columns = as_list(linear_feature_columns), as_list(dnn_feature_columns)
        faults = [
            *units_faults(dnn_hidden_units, "dnn_hidden_units"),
            *hidden_faults(dnn_activation_fn, dnn_dropout, "dnn_"),
            *parts_faults(linear_columns, dnn_columns),
            *combiner_faults("linear_sparse_combiner", linear_sparse_combiner),
            *optimizer_faults(dnn_optimizer, "Adagrad(learning_rate=0.001)", "dnn_optimizer"),
            *regressor_faults(label_dimension, weight_column, loss_reduction),
        ]
        if linear_optimizer is not None:
            faults += optimizer_faults(linear_optimizer, "Ftrl(learning_rate=0.005)", "linear_optimizer")
        check("DNNLinearCombinedRegressor", faults)
        params = {
            "dnn_hidden_units": [int(n) for n in dnn_hidden_units],
            "dnn_activation_fn": dnn_activation_fn,
            "dnn_dropout": dnn_dropout,
            "linear_feature_columns": linear_columns,
            "linear_sparse_combiner": linear_sparse_combiner,
            "linear_optimizer": optimizer_of(linear_optimizer),
            "dnn_feature_columns": dnn_columns,
            "dnn_optimizer": optimizer_of(dnn_optimizer),
        }
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(dnn_linear_combined_model, head, params, model_dir, config, warm_start_from)
