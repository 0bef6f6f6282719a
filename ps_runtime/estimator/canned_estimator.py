"""What Estimators that bring their own model_fn have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from psflow.ps_runtime.activations import ActivationFn
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.base import HeadSpec
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = [
    "CannedEstimator",
    "Dropout",
    "HiddenActivation",
    "LabelVocabulary",
    "LossReduction",
    "NumClasses",
    "WeightColumn",
]

NumClasses = Annotated[
    int | None,
    Key("Number of classes; labels are 0 to n_classes - 1; null: as many as the label has words, else 2.", ge=2),
]
WeightColumn = Annotated[
    str | None,
    Key("Feature of arrays that is the weights of the examples; of record files it is the weight of the input."),
]
LabelVocabulary = Annotated[
    Sequence[str] | None,
    Key("Words of the classes, where labels of arrays are words; of record files they are the classes of the label."),
]
HiddenActivation = Annotated[ActivationFn, Key("What follows the sums of a hidden layer; null: nothing, as linear.")]
Dropout = Annotated[
    float | None,
    Key("Share of the outputs of hidden layers that are 0 in training; null: none is.", ge=0, lt=1),
]
LossReduction = Annotated[Reduction, Key("How the losses of a batch become one number.")]


class CannedEstimator(Estimator):
    """An Estimator whose head says what it takes as labels and weights.

    Parameters
    ----------
    model_fn : callable
        Has ``head`` among its params.
    head : HeadSpec
        What the model is to predict.
    params : mapping
        The other hyper-parameters.
    model_dir, config, warm_start_from
        See `Estimator`.
    """

    def __init__(
        self,
        model_fn: Callable[..., EstimatorSpec],
        head: HeadSpec,
        params: Mapping[str, Any],
        model_dir: str | None,
        config: RunConfig | None,
        warm_start_from: str | WarmStartSettings | None,
    ) -> None:
        super().__init__(model_fn, model_dir, config, {"head": head, **params}, warm_start_from)
        self.weight_column = head.weight_column

    def check_labels(self, labels: Any, where: str, input_schema: InputSchema) -> None:
        """Raise InputError if a whole data set has labels that the head does not take."""
        head: HeadSpec = self.params["head"]
        head.reading(input_schema).check_labels(labels, where)
