"""The Estimator of a classifier that does not look at features."""

from __future__ import annotations

from typing import Annotated, Any

from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.hyper_parameters import check, count_faults, optimizer_faults
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.model.canned.baseline import baseline_classifier
from psflow.ps_runtime.model.canned.head import ClassifierHead
from psflow.ps_runtime.optimizers import Ftrl, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["BaselineClassifier"]

DEFAULT_OPTIMIZER = Ftrl(learning_rate=0.3)


class BaselineClassifier(Estimator):
    """One bias for each class, softmax over these: the shares of the classes, whatever the features are.

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

    Raises
    ------
    UsageError
        All faults in one message.

    Notes
    -----
    It has one variable, ``baseline/bias``, ``(n_classes,)``. Of the features it reads how many examples there are,
    and the weights of the records. Predictions and metrics are those of `DNNClassifier`.
    """

    def __init__(
        self,
        n_classes: Annotated[
            int | None,
            Key("Number of classes; labels are 0 to n_classes - 1; null: the words of the label, else 2.", ge=2),
        ] = None,
        optimizer: Annotated[Optimizer, Key("How the ps applies gradients.")] = DEFAULT_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
    ) -> None:
        faults = [
            *([] if n_classes is None else count_faults("n_classes", n_classes, at_least=2)),
            *optimizer_faults(optimizer, "Ftrl(learning_rate=0.3)"),
        ]
        check("BaselineClassifier", faults)
        super().__init__(
            baseline_classifier,
            model_dir,
            config,
            {"n_classes": None if n_classes is None else int(n_classes), "optimizer": optimizer},
            warm_start_from,
        )

    def check_labels(self, labels: Any, where: str, input_schema: InputSchema) -> None:
        """Raise InputError if a whole data set has labels that are no integers in [0, n_classes)."""
        ClassifierHead.reading(self.params["n_classes"], input_schema).check_labels(labels, where)
