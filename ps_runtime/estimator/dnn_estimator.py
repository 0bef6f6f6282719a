"""The Estimator of a deep neural network with a head that is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psflow.ps_runtime.activations import ActivationFn
from psflow.ps_runtime.estimator.canned_estimator import CannedEstimator
from psflow.ps_runtime.estimator.hyper_parameters import head_faults, hidden_faults, optimizer_faults, units_faults
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import as_list, deep_columns_faults
from psflow.ps_runtime.feature_columns.kinds import DenseColumn
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.base import Head
from psflow.ps_runtime.model.canned.dnn import dnn_model
from psflow.ps_runtime.optimizers import Adagrad, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = ["DNNEstimator"]

DEFAULT_OPTIMIZER = Adagrad(learning_rate=0.05)


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
