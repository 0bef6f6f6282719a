"""Estimators of linear models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from psflow.ps_runtime.estimator.canned.base import (
    CannedEstimator,
    LabelVocabulary,
    NumClasses,
    OptimizerOrName,
    classifier_faults,
    combiner_faults,
    head_faults,
    optimizer_faults,
    optimizer_of,
    regressor_faults,
)
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import as_list, linear_columns_faults
from psflow.ps_runtime.feature_columns.kinds import Combiner, LinearColumn
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.base import Head, LossReduction, WeightColumn
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.linear import linear_model
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.specs.run_config import RunConfig


class LinearClassifier(CannedEstimator):
    """A weighted sum of the features for each class, and softmax; for two classes one sum and the logistic function.

    Parameters
    ----------
    feature_columns : column or iterable of column, optional
        The columns to read, made by the functions of `psflow.feature_column`, except embeddings. By default the model
        reads the features themselves.
    n_classes : int, optional
        Number of classes, at least 2; labels are integers in [0, n_classes), of shape ``(batch,)`` or ``(batch, 1)``.
        By default the number of class names where the labels are strings, or 2 where they are numbers.
    optimizer : Optimizer or str, optional
        Trains all weights; by default Ftrl with learning rate ``min(0.2, 1 / sqrt(number of columns))``.
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
    sparse_combiner : {"sum", "mean", "sqrtn"}
        How to combine the weights of several ids of a column in an example.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    Features are an array ``(batch, k)``, or a mapping of such arrays. The weights of one are the variable
    ``linear/linear_model/<name>/weights``, ``(k, n_classes)``, or ``(k, 1)`` for two classes. A feature that the
    training input declares as ids, ``(batch,)``, has a weight for each id and class: up to 1,000 ids are such a
    variable, ``(num_ids, n_classes)``, more are a sparse table. Only deep networks read embeddings. All weights start
    at 0.

    The number of columns counts each column of a table that arrives as a matrix, and any other feature once.

    Weights of the records, predictions and metrics are those of `DNNClassifier`.
    """

    def __init__(
        self,
        feature_columns: LinearColumn | Iterable[LinearColumn] | None = None,
        n_classes: NumClasses = None,
        optimizer: Annotated[
            OptimizerOrName | None,
            Key("Applies the gradients on the ps; null: Ftrl, learning rate min(0.2, 1 / sqrt(number of columns))."),
        ] = None,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        *,
        weight_column: WeightColumn = None,
        label_vocabulary: LabelVocabulary = None,
        loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE,
        sparse_combiner: Combiner = "sum",
    ) -> None:
        columns = as_list(feature_columns)
        faults = classifier_faults(n_classes, weight_column, label_vocabulary, loss_reduction)
        if optimizer is not None:
            faults += optimizer_faults(optimizer, "Ftrl(learning_rate=0.2)")
        faults += combiner_faults("sparse_combiner", sparse_combiner)
        if columns is not None:
            faults += linear_columns_faults(columns)
        check("LinearClassifier", faults)
        params = {"feature_columns": columns, "sparse_combiner": sparse_combiner, "optimizer": optimizer_of(optimizer)}
        head = ClassifierSpec(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(linear_model, head, params, model_dir, config, warm_start_from)


class LinearEstimator(CannedEstimator):
    """A weighted sum of the features for each logit of a head.

    Parameters
    ----------
    head : Head
        Interprets the logits, such as `MultiLabelHead`.
    feature_columns : column or iterable of column, optional
        See `LinearClassifier`.
    optimizer : Optimizer or str, optional
        See `LinearClassifier`.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Source of the initial values; see `Estimator`.
    sparse_combiner : {"sum", "mean", "sqrtn"}
        See `LinearClassifier`.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    Features and variables are those of `LinearClassifier`; labels, weights, loss,
    predictions and metrics those of the head.
    """

    def __init__(
        self,
        head: Head,
        feature_columns: LinearColumn | Iterable[LinearColumn] | None = None,
        optimizer: OptimizerOrName | None = None,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        *,
        sparse_combiner: Combiner = "sum",
    ) -> None:
        columns = as_list(feature_columns)
        faults = [*head_faults(head), *combiner_faults("sparse_combiner", sparse_combiner)]
        if columns is not None:
            faults += linear_columns_faults(columns)
        if optimizer is not None:
            faults += optimizer_faults(optimizer, "Ftrl(learning_rate=0.2)")
        check("LinearEstimator", faults)
        params = {"feature_columns": columns, "sparse_combiner": sparse_combiner, "optimizer": optimizer_of(optimizer)}
        super().__init__(linear_model, head, params, model_dir, config, warm_start_from)


class LinearRegressor(CannedEstimator):
    """A weighted sum of the features, trained to predict numbers with the least squared error.

    Parameters
    ----------
    feature_columns : column or iterable of column, optional
        The columns to read, made by the functions of `psflow.feature_column`, except embeddings. By default the model
        reads the features themselves.
    label_dimension : int
        Size of a label, at least 1; labels are numbers of shape ``(batch, label_dimension)``, or ``(batch,)`` for size
        1.
    optimizer : Optimizer or str, optional
        Trains all weights; by default Ftrl with learning rate ``min(0.2, 1 / sqrt(number of columns))``.
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
    sparse_combiner : {"sum", "mean", "sqrtn"}
        How to combine the weights of several ids of a column in an example.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    Features, weights and the default optimizer are those of `LinearClassifier`, with the dimensions of a label in place
    of classes. Predictions, metrics and loss are those of `DNNRegressor`.
    """

    def __init__(
        self,
        feature_columns: LinearColumn | Iterable[LinearColumn] | None = None,
        label_dimension: Annotated[int, Key("Size of a label.", ge=1)] = 1,
        optimizer: Annotated[
            OptimizerOrName | None,
            Key("Applies the gradients on the ps; null: Ftrl, learning rate min(0.2, 1 / sqrt(number of columns))."),
        ] = None,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        *,
        weight_column: WeightColumn = None,
        loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE,
        sparse_combiner: Combiner = "sum",
    ) -> None:
        columns = as_list(feature_columns)
        faults = regressor_faults(label_dimension, weight_column, loss_reduction)
        if optimizer is not None:
            faults += optimizer_faults(optimizer, "Ftrl(learning_rate=0.2)")
        faults += combiner_faults("sparse_combiner", sparse_combiner)
        if columns is not None:
            faults += linear_columns_faults(columns)
        check("LinearRegressor", faults)
        params = {"feature_columns": columns, "sparse_combiner": sparse_combiner, "optimizer": optimizer_of(optimizer)}
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(linear_model, head, params, model_dir, config, warm_start_from)
