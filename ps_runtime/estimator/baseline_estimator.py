"""The Estimator of a model that does not look at features, with a head that is given."""

from __future__ import annotations

from psflow.ps_runtime.estimator.canned_estimator import CannedEstimator
from psflow.ps_runtime.estimator.hyper_parameters import head_faults, optimizer_faults
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.base import Head
from psflow.ps_runtime.model.canned.baseline import baseline_model
from psflow.ps_runtime.optimizers import Ftrl, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = ["BaselineEstimator"]

DEFAULT_OPTIMIZER = Ftrl(learning_rate=0.3)


class BaselineEstimator(CannedEstimator):
    """One bias for each logit of a head, whatever the features are.

    Parameters
    ----------
    head : Head
        What the logits stand for, such as `MultiLabelHead`.
    optimizer : Optimizer
        See `BaselineClassifier`.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Where the first values come from; see `Estimator`.

    Raises
    ------
    UsageError
        All faults in one message.

    Notes
    -----
    Features and variables are those of `BaselineClassifier`; labels, weights, loss,
    predictions and metrics those of the head.
    """

    def __init__(
        self,
        head: Head,
        optimizer: Optimizer = DEFAULT_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
    ) -> None:
        faults = [*head_faults(head), *optimizer_faults(optimizer, "Ftrl(learning_rate=0.3)")]
        check("BaselineEstimator", faults)
        params = {"optimizer": optimizer}
        super().__init__(baseline_model, head, params, model_dir, config, warm_start_from)
