"""The Estimator of a deep neural network that predicts numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from psflow.ps_runtime.estimator.canned_estimator import (
    CannedEstimator,
    Dropout,
    HiddenActivation,
    LossReduction,
    WeightColumn,
)
from psflow.ps_runtime.estimator.hyper_parameters import hidden_faults, optimizer_faults, regressor_faults, units_faults
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import as_list, deep_columns_faults
from psflow.ps_runtime.feature_columns.kinds import DenseColumn
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.dnn import dnn_model
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.optimizers import Adagrad, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = ["DNNRegressor"]

DEFAULT_OPTIMIZER = Adagrad(learning_rate=0.05)


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
        The feature that is the weights of the examples; of record files the ``weight`` of the input says it.
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

    Where ``normalize: standard`` is said of the label of record files, the loss is that of normalized labels.
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
