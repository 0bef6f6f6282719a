"""The Estimator of a wide and deep model with a head that is given."""

from __future__ import annotations

from collections.abc import Sequence

from psflow.ps_runtime.activations import ActivationFn
from psflow.ps_runtime.estimator.canned_estimator import CannedEstimator
from psflow.ps_runtime.estimator.hyper_parameters import (
    NamesOrColumns,
    combiner_faults,
    head_faults,
    hidden_faults,
    optimizer_faults,
    parts_faults,
    units_faults,
)
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import as_list
from psflow.ps_runtime.feature_columns.kinds import Combiner
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.base import Head
from psflow.ps_runtime.model.canned.dnn_linear_combined import dnn_linear_combined_model
from psflow.ps_runtime.optimizers import Adagrad, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = ["DNNLinearCombinedEstimator"]

DEFAULT_DNN_OPTIMIZER = Adagrad(learning_rate=0.001)


class DNNLinearCombinedEstimator(CannedEstimator):
    """A linear model and a deep network whose outputs are added up: the logits of a head.

    Parameters
    ----------
    head : Head
        What the logits stand for, such as `MultiLabelHead`.
    dnn_hidden_units, linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer
        See `DNNLinearCombinedClassifier`.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Where the first values come from; see `Estimator`.
    linear_sparse_combiner : {"sum", "mean", "sqrtn"}
        See `LinearClassifier`.
    dnn_activation_fn, dnn_dropout
        `activation_fn` and `dropout` of the deep part; see `DNNClassifier`.

    Raises
    ------
    UsageError
        All faults in one message.

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
        linear_optimizer: Optimizer | None = None,
        dnn_feature_columns: NamesOrColumns | None = None,
        dnn_optimizer: Optimizer = DEFAULT_DNN_OPTIMIZER,
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
            "linear_optimizer": linear_optimizer,
            "dnn_feature_columns": dnn_columns,
            "dnn_optimizer": dnn_optimizer,
        }
        super().__init__(dnn_linear_combined_model, head, params, model_dir, config, warm_start_from)
