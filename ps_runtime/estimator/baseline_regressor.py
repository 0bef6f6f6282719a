"""The Estimator of a regressor that does not look at features."""

from __future__ import annotations

from typing import Annotated

from psflow.ps_runtime.estimator.canned_estimator import CannedEstimator, LossReduction, WeightColumn
from psflow.ps_runtime.estimator.hyper_parameters import optimizer_faults, regressor_faults
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.baseline import baseline_model
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.optimizers import Ftrl, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = ["BaselineRegressor"]

DEFAULT_OPTIMIZER = Ftrl(learning_rate=0.3)


class BaselineRegressor(CannedEstimator):
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
    weight_column : str, optional
        The feature that is the weights of the examples; of record files the ``weight`` of the input says it.
    loss_reduction : Reduction
        How the losses of a batch become one number.

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
        *,
        weight_column: WeightColumn = None,
        loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE,
    ) -> None:
        faults = [
            *regressor_faults(label_dimension, weight_column, loss_reduction),
            *optimizer_faults(optimizer, "Ftrl(learning_rate=0.3)"),
        ]
        check("BaselineRegressor", faults)
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(baseline_model, head, {"optimizer": optimizer}, model_dir, config, warm_start_from)
