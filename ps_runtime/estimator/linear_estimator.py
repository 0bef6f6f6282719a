"""The Estimator of a linear model with a head that is given."""

from __future__ import annotations

from collections.abc import Iterable

from psflow.ps_runtime.estimator.canned_estimator import CannedEstimator
from psflow.ps_runtime.estimator.hyper_parameters import combiner_faults, head_faults, optimizer_faults
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import as_list, linear_columns_faults
from psflow.ps_runtime.feature_columns.kinds import Combiner, LinearColumn
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.base import Head
from psflow.ps_runtime.model.canned.linear import linear_model
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = ["LinearEstimator"]


class LinearEstimator(CannedEstimator):
    """A weighted sum of the features for each logit of a head.

    Parameters
    ----------
    head : Head
        What the logits stand for, such as `MultiLabelHead`.
    feature_columns : column or iterable of column, optional
        See `LinearClassifier`.
    optimizer : Optimizer, optional
        See `LinearClassifier`.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Where the first values come from; see `Estimator`.
    sparse_combiner : {"sum", "mean", "sqrtn"}
        See `LinearClassifier`.

    Raises
    ------
    UsageError
        All faults in one message.

    Notes
    -----
    Features and variables are those of `LinearClassifier`; labels, weights, loss,
    predictions and metrics those of the head.
    """

    def __init__(
        self,
        head: Head,
        feature_columns: LinearColumn | Iterable[LinearColumn] | None = None,
        optimizer: Optimizer | None = None,
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
        params = {"feature_columns": columns, "sparse_combiner": sparse_combiner, "optimizer": optimizer}
        super().__init__(linear_model, head, params, model_dir, config, warm_start_from)
