"""Estimators of deep neural networks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from psflow.ps_runtime.estimator.canned.base import (
    CannedEstimator,
    Dropout,
    HiddenActivation,
    LabelVocabulary,
    LossReduction,
    NumClasses,
    WeightColumn,
    classifier_faults,
    head_faults,
    hidden_faults,
    optimizer_faults,
    regressor_faults,
    units_faults,
)
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import as_list, deep_columns_faults
from psflow.ps_runtime.feature_columns.kinds import DenseColumn
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.layers import ActivationFn
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.base import Head
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.dnn import dnn_model
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.optimizers import Adagrad, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig

DEFAULT_OPTIMIZER = Adagrad(learning_rate=0.05)


class DNNClassifier(CannedEstimator):
    """Dense layers with an activation function between them, and softmax, or of two classes the logistic function.

    Parameters
    ----------
    hidden_units : sequence of int
        Units of each hidden layer, from the input on; none for a linear model.
    feature_columns : column or iterable of column, optional
        What it reads of the features, made by the functions of `psflow.feature_column`; columns of ids are wrapped in
        an embedding or an indicator. By default it reads the features themselves.
    n_classes : int, optional
        Number of classes, at least 2; labels are integers in [0, n_classes), of shape ``(batch,)`` or ``(batch, 1)``.
        By default as many as the words that the labels are, or 2 where labels are numbers.
    optimizer : Optimizer
        Trains all layers; Adagrad with learning rate 0.05 by default.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Where the first values come from; see `Estimator`.
    weight_column : str, optional
        The feature that is the weights of the examples; of tabular files the ``weight`` of the input says it.
    label_vocabulary : sequence of str, optional
        The words of the classes, where the labels of arrays are words; tabular files have the classes of the label.
    loss_reduction : Reduction
        How the losses of a batch become one number.
    activation_fn : str, callable or None
        What follows the sums of each hidden layer: ``relu``, ``relu6``, ``leaky_relu``, ``elu``, ``selu``,
        ``softplus``, ``softsign``, ``sigmoid``, ``tanh`` or ``linear``, which is None, too; or a function of numpy, or
        one written with ``autograd.numpy``, of arrays ``(batch, units)``.
    dropout : float, optional
        The share of the outputs of each hidden layer that are 0 in training; the others are divided by
        ``1 - dropout``. Drawn from the seed of the job, for each replica and step.

    Raises
    ------
    UsageError
        All faults in one message.

    Notes
    -----
    Features are an array ``(batch, k)``, or a mapping of such arrays, put side by side in the sorted order of their
    names. Of a feature that the training input declares as ids, ``(batch,)``, stands there a column for each id, 1 in
    the rows that have it and else 0; it may have up to 1,000 ids. With an embedding it is the learned vector of each
    row's id that stands there; up to 1,000 vectors are a variable, more of them a sparse table.

    Weights of the records, where the training input has some, are no feature: they multiply the losses of the examples,
    whose sum is divided by the number of examples, and metrics are weighted.

    Predictions, metrics and signatures of exports are those of `BinaryClassHead` or, of more classes, `MultiClassHead`.
    """

    def __init__(
        self,
        hidden_units: Annotated[
            Sequence[Annotated[int, Key("Units.", ge=1)]], Key("Units of each hidden layer, the first layer first.")
        ],
        feature_columns: DenseColumn | Iterable[DenseColumn] | None = None,
        n_classes: NumClasses = None,
        optimizer: Annotated[Optimizer, Key("How the ps applies gradients.")] = DEFAULT_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        *,
        weight_column: WeightColumn = None,
        label_vocabulary: LabelVocabulary = None,
        loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE,
        activation_fn: HiddenActivation = "relu",
        dropout: Dropout = None,
    ) -> None:
        columns = as_list(feature_columns)
        faults = [
            *([] if columns is None else deep_columns_faults(columns)),
            *units_faults(hidden_units),
            *hidden_faults(activation_fn, dropout),
            *classifier_faults(n_classes, weight_column, label_vocabulary, loss_reduction),
            *optimizer_faults(optimizer, "Adagrad(learning_rate=0.05)"),
        ]
        check("DNNClassifier", faults)
        params = {
            "hidden_units": [int(n) for n in hidden_units],
            "activation_fn": activation_fn,
            "dropout": dropout,
            "feature_columns": columns,
            "optimizer": optimizer,
        }
        head = ClassifierSpec(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(dnn_model, head, params, model_dir, config, warm_start_from)


class DNNEstimator(CannedEstimator):
    """Dense layers with an activation function between them, and the logits of a head at the end.

    Parameters
    ----------
    head : Head
        What the logits stand for, such as `MultiLabelHead`.
    hidden_units : sequence of int
        See `DNNClassifier`.
    feature_columns : column or iterable of column, optional
        See `DNNClassifier`.
    optimizer : Optimizer
        See `DNNClassifier`.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Where the first values come from; see `Estimator`.
    activation_fn, dropout
        See `DNNClassifier`.

    Raises
    ------
    UsageError
        All faults in one message.

    Notes
    -----
    Features and variables are those of `DNNClassifier`; labels, weights, loss,
    predictions and metrics those of the head.
    """

    def __init__(
        self,
        head: Head,
        hidden_units: Sequence[int],
        feature_columns: DenseColumn | Iterable[DenseColumn] | None = None,
        optimizer: Optimizer = DEFAULT_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        *,
        activation_fn: ActivationFn = "relu",
        dropout: float | None = None,
    ) -> None:
        columns = as_list(feature_columns)
        faults = [
            *head_faults(head),
            *([] if columns is None else deep_columns_faults(columns)),
            *units_faults(hidden_units),
            *hidden_faults(activation_fn, dropout),
            *optimizer_faults(optimizer, "Adagrad(learning_rate=0.05)"),
        ]
        check("DNNEstimator", faults)
        params = {
            "hidden_units": [int(n) for n in hidden_units],
            "activation_fn": activation_fn,
            "dropout": dropout,
            "feature_columns": columns,
            "optimizer": optimizer,
        }
        super().__init__(dnn_model, head, params, model_dir, config, warm_start_from)


class DNNRegressor(CannedEstimator):
    """Dense layers with an activation function between them, trained to predict numbers with the least squared error.

    Parameters
    ----------
    hidden_units : sequence of int
        Units of each hidden layer, from the input on; none for a linear model.
    feature_columns : column or iterable of column, optional
        What it reads of the features, made by the functions of `psflow.feature_column`; columns of ids are wrapped in
        an embedding or an indicator. By default it reads the features themselves.
    label_dimension : int
        Numbers of a label, at least 1; labels are numbers of shape ``(batch, label_dimension)``, or ``(batch,)`` where
        it is 1.
    optimizer : Optimizer
        Trains all layers; Adagrad with learning rate 0.05 by default.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Where the first values come from; see `Estimator`.
    weight_column : str, optional
        The feature that is the weights of the examples; of tabular files the ``weight`` of the input says it.
    loss_reduction : Reduction
        How the losses of a batch become one number.
    activation_fn : str, callable or None
        What follows the sums of each hidden layer: ``relu``, ``relu6``, ``leaky_relu``, ``elu``, ``selu``,
        ``softplus``, ``softsign``, ``sigmoid``, ``tanh`` or ``linear``, which is None, too; or a function of numpy, or
        one written with ``autograd.numpy``, of arrays ``(batch, units)``.
    dropout : float, optional
        The share of the outputs of each hidden layer that are 0 in training; the others are divided by
        ``1 - dropout``. Drawn from the seed of the job, for each replica and step.

    Raises
    ------
    UsageError
        All faults in one message.

    Notes
    -----
    Features and weights of the records are those of `DNNClassifier`. Predictions are ``predictions``, ``(batch,
    label_dimension)``. Metrics are ``average_loss``, ``label/mean`` and ``prediction/mean``. The loss is the mean over
    examples and dimensions.

    Where ``normalize: standard`` is said of the label of tabular files, the loss is that of normalized labels.
    """

    def __init__(
        self,
        hidden_units: Annotated[
            Sequence[Annotated[int, Key("Units.", ge=1)]], Key("Units of each hidden layer, the first layer first.")
        ],
        feature_columns: DenseColumn | Iterable[DenseColumn] | None = None,
        label_dimension: Annotated[int, Key("Numbers of a label.", ge=1)] = 1,
        optimizer: Annotated[Optimizer, Key("How the ps applies gradients.")] = DEFAULT_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        *,
        weight_column: WeightColumn = None,
        loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE,
        activation_fn: HiddenActivation = "relu",
        dropout: Dropout = None,
    ) -> None:
        columns = as_list(feature_columns)
        faults = [
            *([] if columns is None else deep_columns_faults(columns)),
            *units_faults(hidden_units),
            *hidden_faults(activation_fn, dropout),
            *regressor_faults(label_dimension, weight_column, loss_reduction),
            *optimizer_faults(optimizer, "Adagrad(learning_rate=0.05)"),
        ]
        check("DNNRegressor", faults)
        params = {
            "hidden_units": [int(n) for n in hidden_units],
            "activation_fn": activation_fn,
            "dropout": dropout,
            "feature_columns": columns,
            "optimizer": optimizer,
        }
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(dnn_model, head, params, model_dir, config, warm_start_from)
