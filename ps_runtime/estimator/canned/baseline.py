"""Estimators of baseline models, which ignore the features."""

from __future__ import annotations

from typing import Annotated

from psflow.ps_runtime.estimator.canned.base import (
    CannedEstimator,
    LabelVocabulary,
    NumClasses,
    OptimizerOrName,
    classifier_faults,
    head_faults,
    optimizer_faults,
    optimizer_of,
    regressor_faults,
)
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.base import Head, LossReduction, WeightColumn
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.linear import baseline_model
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.optimizers import Ftrl
from psflow.ps_runtime.specs.run_config import RunConfig

DEFAULT_OPTIMIZER = Ftrl(learning_rate=0.3)


class BaselineClassifier(CannedEstimator):
    """One bias for each class, or one for two classes: predicts the class frequencies, whatever the features are.

    Parameters
    ----------
    n_classes : int, optional
        See `DNNClassifier`.
    optimizer : Optimizer or str
        Trains the bias; by default Ftrl with learning rate 0.3.
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

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    The only variable is ``baseline/bias``, ``(n_classes,)``, or ``(1,)`` for two classes. The model reads only the
    number of examples and the weights of the records. Predictions and metrics are those of `DNNClassifier`.
    """

    def __init__(
        self,
        n_classes: NumClasses = None,
        optimizer: Annotated[OptimizerOrName, Key("Applies the gradients on the ps.")] = DEFAULT_OPTIMIZER,
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
        super().__init__(
            baseline_model, head, {"optimizer": optimizer_of(optimizer)}, model_dir, config, warm_start_from
        )


class BaselineEstimator(CannedEstimator):
    """One bias for each logit of a head, whatever the features are.

    Parameters
    ----------
    head : Head
        Interprets the logits, such as `MultiLabelHead`.
    optimizer : Optimizer or str
        See `BaselineClassifier`.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Source of the initial values; see `Estimator`.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    Features and variables are those of `BaselineClassifier`; labels, weights, loss,
    predictions and metrics those of the head.
    """

    def __init__(
        self,
        head: Head,
        optimizer: OptimizerOrName = DEFAULT_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
    ) -> None:
        faults = [*head_faults(head), *optimizer_faults(optimizer, "Ftrl(learning_rate=0.3)")]
        check("BaselineEstimator", faults)
        params = {"optimizer": optimizer_of(optimizer)}
        super().__init__(baseline_model, head, params, model_dir, config, warm_start_from)


class BaselineRegressor(CannedEstimator):
    """One number for each dimension of a label: predicts the mean of the labels, whatever the features are.

    Parameters
    ----------
    label_dimension : int
        See `DNNRegressor`.
    optimizer : Optimizer or str
        Trains the bias; by default Ftrl with learning rate 0.3.
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

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    The only variable is ``baseline/bias``, ``(label_dimension,)``. The model reads only the number of examples and the
    weights of the records. Predictions and metrics are those of `DNNRegressor`.
    """

    def __init__(
        self,
        label_dimension: Annotated[int, Key("Size of a label.", ge=1)] = 1,
        optimizer: Annotated[OptimizerOrName, Key("Applies the gradients on the ps.")] = DEFAULT_OPTIMIZER,
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
        super().__init__(
            baseline_model, head, {"optimizer": optimizer_of(optimizer)}, model_dir, config, warm_start_from
        )
