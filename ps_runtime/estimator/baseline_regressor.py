"""The Estimator of a regressor that does not look at features."""

from __future__ import annotations

from typing import Annotated, Any

from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.hyper_parameters import check, count_faults, optimizer_faults
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.model.canned.baseline import baseline_regressor
from psflow.ps_runtime.model.canned.regressor_head import RegressorHead
from psflow.ps_runtime.optimizers import Ftrl, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["BaselineRegressor"]

DEFAULT_OPTIMIZER = Ftrl(learning_rate=0.3)


class BaselineRegressor(Estimator):
    """One number for each dimension of a label: the mean of the labels, whatever the features are.

    Parameters
    ----------
    label_dimension : int
        See `DNNRegressor`.
    optimizer : Optimizer
        Trains the bias; Ftrl with learning rate 0.3 by default.
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
    It has one variable, ``baseline/bias``, ``(label_dimension,)``. Of the features it reads how many examples there
    are, and the weights of the records. Predictions and metrics are those of `DNNRegressor`.
    """

    def __init__(
        self,
        label_dimension: Annotated[int, Key("Numbers of a label.", ge=1)] = 1,
        optimizer: Annotated[Optimizer, Key("How the ps applies gradients.")] = DEFAULT_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
    ) -> None:
        faults = [
            *count_faults("label_dimension", label_dimension, at_least=1),
            *optimizer_faults(optimizer, "Ftrl(learning_rate=0.3)"),
        ]
        check("BaselineRegressor", faults)
        super().__init__(
            baseline_regressor,
            model_dir,
            config,
            {"label_dimension": int(label_dimension), "optimizer": optimizer},
            warm_start_from,
        )

    def check_labels(self, labels: Any, where: str, input_schema: InputSchema) -> None:
        """Raise InputError if a whole data set has labels that are not `label_dimension` numbers for each example."""
        RegressorHead(self.params["label_dimension"]).check_labels(labels, where)
