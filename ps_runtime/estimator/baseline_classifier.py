"""The Estimator of a classifier that does not look at features."""

from __future__ import annotations

from typing import Annotated

from psflow.ps_runtime.estimator.canned_estimator import (
    CannedEstimator,
    LabelVocabulary,
    LossReduction,
    NumClasses,
    WeightColumn,
)
from psflow.ps_runtime.estimator.hyper_parameters import classifier_faults, optimizer_faults
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.baseline import baseline_model
from psflow.ps_runtime.model.canned.classifier_spec import ClassifierSpec
from psflow.ps_runtime.optimizers import Ftrl, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = ["BaselineClassifier"]

DEFAULT_OPTIMIZER = Ftrl(learning_rate=0.3)


class BaselineClassifier(CannedEstimator):
    """One bias for each class, or one for two of them: the shares of the classes, whatever the features are.

    Parameters
    ----------
    n_classes : int, optional
        See `DNNClassifier`.
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
    label_vocabulary : sequence of str, optional
        The words of the classes, where the labels of arrays are words; record files have the classes of the label.
    loss_reduction : Reduction
        How the losses of a batch become one number.

    Raises
    ------
    UsageError
        All faults in one message.

    Notes
    -----
    It has one variable, ``baseline/bias``, ``(n_classes,)``, or ``(1,)`` of two classes. Of the features it reads how
    many examples there are, and the weights of the records. Predictions and metrics are those of `DNNClassifier`.
    """

    def __init__(
        self,
        n_classes: NumClasses = None,
        optimizer: Annotated[Optimizer, Key("How the ps applies gradients.")] = DEFAULT_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        *,
        weight_column: WeightColumn = None,
        label_vocabulary: LabelVocabulary = None,
        loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE,
    ) -> None:
        faults = [
            *classifier_faults(n_classes, weight_column, label_vocabulary, loss_reduction),
            *optimizer_faults(optimizer, "Ftrl(learning_rate=0.3)"),
        ]
        check("BaselineClassifier", faults)
        head = ClassifierSpec(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(baseline_model, head, {"optimizer": optimizer}, model_dir, config, warm_start_from)
