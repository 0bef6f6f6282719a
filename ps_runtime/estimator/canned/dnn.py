"""Estimators of deep neural networks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from psflow.ps_runtime.estimator.canned.base import (
    CannedEstimator,
    Dropout,
    HiddenActivation,
    LabelVocabulary,
    NumClasses,
    OptimizerOrName,
    classifier_faults,
    head_faults,
    hidden_faults,
    optimizer_faults,
    optimizer_of,
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
from psflow.ps_runtime.model.canned.base import Head, LossReduction, WeightColumn
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.dnn import dnn_model
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.optimizers import Adagrad
from psflow.ps_runtime.specs.run_config import RunConfig

DEFAULT_OPTIMIZER = Adagrad(learning_rate=0.05)


class DNNClassifier(CannedEstimator):
    """Dense layers with an activation function between them; softmax, or for two classes the logistic function.

    Parameters
    ----------
    hidden_units : sequence of int
        Units of each hidden layer, starting at the input; empty for a linear model.
    feature_columns : column or iterable of column, optional
        The columns to read, made by the functions of `psflow.feature_column`; categorical columns are wrapped in an
        embedding or an indicator. By default the model reads the features themselves.
    n_classes : int, optional
        Number of classes, at least 2; labels are integers in [0, n_classes), of shape ``(batch,)`` or ``(batch, 1)``.
        By default the number of class names where the labels are strings, or 2 where they are numbers.
    optimizer : Optimizer or str
        Trains all layers; by default Adagrad with learning rate 0.05. A name stands for the defaults of a class that
        has a default learning rate: Adagrad, Adam, AdamW or NAdam.
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
    activation_fn : str, callable or None
        Activation function of each hidden layer: ``relu``, ``relu6``, ``leaky_relu``, ``elu``, ``selu``, ``softplus``,
        ``softsign``, ``sigmoid``, ``tanh`` or ``linear``, which equals None; or a function of arrays ``(batch, units)``
        written with numpy or ``autograd.numpy``.
    dropout : float, optional
        The share of the outputs of each hidden layer that are set to 0 in training; the others are divided by
        ``1 - dropout``. Drawn from the seed of the job, for each replica and step.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    Features are an array ``(batch, k)``, or a mapping of such arrays, concatenated in the sorted order of their names.
    A feature that the training input declares as ids, ``(batch,)``, is one-hot encoded: a column for each id; it may
    have up to 1,000 ids. With an embedding, the learned vector of each row's id takes their place; up to 1,000 vectors
    are a variable, more are a sparse table.

    Weights of the training records are not a feature: they multiply the losses of the examples, whose sum is divided by
    the number of examples, and metrics are weighted.

    Predictions, metrics and export signatures are those of `BinaryClassHead` for two classes, else `MultiClassHead`.
    """

    def __init__(
        self,
        hidden_units: Annotated[
            Sequence[Annotated[int, Key("Units.", ge=1)]], Key("Units of each hidden layer, the first layer first.")
        ],
        feature_columns: DenseColumn | Iterable[DenseColumn] | None = None,
        n_classes: NumClasses = None,
        optimizer: Annotated[OptimizerOrName, Key("Applies the gradients on the ps.")] = DEFAULT_OPTIMIZER,
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
            "optimizer": optimizer_of(optimizer),
        }
        head = ClassifierSpec(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(dnn_model, head, params, model_dir, config, warm_start_from)


class DNNEstimator(CannedEstimator):
    """Dense layers with an activation function between them, followed by the logits of a head.

    Parameters
    ----------
    head : Head
        Interprets the logits, such as `MultiLabelHead`.
    hidden_units : sequence of int
        See `DNNClassifier`.
    feature_columns : column or iterable of column, optional
        See `DNNClassifier`.
    optimizer : Optimizer or str
        See `DNNClassifier`.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Source of the initial values; see `Estimator`.
    activation_fn, dropout
        See `DNNClassifier`.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

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
        optimizer: OptimizerOrName = DEFAULT_OPTIMIZER,
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
            "optimizer": optimizer_of(optimizer),
        }
        super().__init__(dnn_model, head, params, model_dir, config, warm_start_from)


class DNNRegressor(CannedEstimator):
    """Dense layers with an activation function between them, trained to predict numbers with the least squared error.

    Parameters
    ----------
    hidden_units : sequence of int
        Units of each hidden layer, starting at the input; empty for a linear model.
    feature_columns : column or iterable of column, optional
        The columns to read, made by the functions of `psflow.feature_column`; categorical columns are wrapped in an
        embedding or an indicator. By default the model reads the features themselves.
    label_dimension : int
        Size of a label, at least 1; labels are numbers of shape ``(batch, label_dimension)``, or ``(batch,)`` for size
        1.
    optimizer : Optimizer or str
        Trains all layers; by default Adagrad with learning rate 0.05.
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
    activation_fn : str, callable or None
        Activation function of each hidden layer: ``relu``, ``relu6``, ``leaky_relu``, ``elu``, ``selu``, ``softplus``,
        ``softsign``, ``sigmoid``, ``tanh`` or ``linear``, which equals None; or a function of arrays ``(batch, units)``
        written with numpy or ``autograd.numpy``.
    dropout : float, optional
        The share of the outputs of each hidden layer that are set to 0 in training; the others are divided by
        ``1 - dropout``. Drawn from the seed of the job, for each replica and step.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    Features and weights of the records are those of `DNNClassifier`. Predictions are ``predictions``, ``(batch,
    label_dimension)``. Metrics are ``average_loss``, ``label/mean`` and ``prediction/mean``. The loss is the mean over
    examples and dimensions.

    Where the label of tabular files has ``normalize: standard``, the loss is that of normalized labels.
    """

    def __init__(
        self,
        hidden_units: Annotated[
            Sequence[Annotated[int, Key("Units.", ge=1)]], Key("Units of each hidden layer, the first layer first.")
        ],
        feature_columns: DenseColumn | Iterable[DenseColumn] | None = None,
        label_dimension: Annotated[int, Key("Size of a label.", ge=1)] = 1,
        optimizer: Annotated[OptimizerOrName, Key("Applies the gradients on the ps.")] = DEFAULT_OPTIMIZER,
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
            "optimizer": optimizer_of(optimizer),
        }
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(dnn_model, head, params, model_dir, config, warm_start_from)
