"""What Estimators that bring their own model_fn have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import deep_columns_faults, has_columns, linear_columns_faults
from psflow.ps_runtime.feature_columns.kinds import COMBINERS, FeatureColumn
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.layers import ActivationFn, activation_faults
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.arguments import class_faults, count_faults, is_count, loss_faults
from psflow.ps_runtime.model.canned.base import Head, HeadSpec
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.numeric import is_number
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import InputSchema

if TYPE_CHECKING:
    NamesOrColumns = FeatureColumn | Iterable[str] | Iterable[FeatureColumn]
else:
    NamesOrColumns = Sequence[str]  # what a configuration may have


def classifier_faults(n_classes: Any, weight_column: Any, label_vocabulary: Any, loss_reduction: Any) -> list[str]:
    """Say what is wrong with what a classifier is asked for."""
    return [*class_faults(n_classes, label_vocabulary, at_least=2), *loss_faults(weight_column, loss_reduction)]


def regressor_faults(label_dimension: Any, weight_column: Any, loss_reduction: Any) -> list[str]:
    """Say what is wrong with what a regressor is asked for."""
    return [
        *count_faults("label_dimension", label_dimension, at_least=1),
        *loss_faults(weight_column, loss_reduction),
    ]


def head_faults(head: Any) -> list[str]:
    """Say what is wrong with a head."""
    if isinstance(head, Head):
        return []
    return [f"head is {head!r}, expected a Head such as MultiLabelHead(n_classes=3)"]


def units_faults(hidden_units: Any, name: str = "hidden_units") -> list[str]:
    """Say what is wrong with the units of hidden layers: a list of integers >= 1, which may be empty."""
    if isinstance(hidden_units, Sequence | np.ndarray) and all(is_count(n, at_least=1) for n in hidden_units):
        return []
    return [f"{name} is {hidden_units!r}, expected a list of integers >= 1"]


def optimizer_faults(optimizer: Any, example: str, name: str = "optimizer") -> list[str]:
    """Say what is wrong with an optimizer; `example` shows how one is made."""
    if isinstance(optimizer, Optimizer):
        return []
    return [f"{name} is {optimizer!r}, expected an Optimizer such as {example}"]


def hidden_faults(activation_fn: Any, dropout: Any, prefix: str = "") -> list[str]:
    """Say what is wrong with the activation function and the dropout of hidden layers."""
    faults = activation_faults(activation_fn, f"{prefix}activation_fn")
    if dropout is not None and not (is_number(dropout) and 0 <= dropout < 1):
        faults.append(f"{prefix}dropout is {dropout!r}, expected a number from 0 to below 1, or None")
    return faults


def combiner_faults(name: str, combiner: Any) -> list[str]:
    """Say what is wrong with the way in which weights of several ids become one."""
    return [] if combiner in COMBINERS else [f"{name} is {combiner!r}, expected {', '.join(COMBINERS)}"]


def parts_faults(linear_names: Any, dnn_names: Any) -> list[str]:
    """Say what is wrong with the features of the parts of a wide and deep model.

    There are names or columns for both parts, or for none.
    """
    if has_columns(linear_names) or has_columns(dnn_names):
        return [
            *linear_columns_faults(linear_names, "linear_feature_columns"),
            *deep_columns_faults(dnn_names, "dnn_feature_columns"),
        ]
    named = {"linear_feature_columns": linear_names, "dnn_feature_columns": dnn_names}
    faults = [
        f"{key} is {names!r}, expected a list of names of features, each once"
        for key, names in named.items()
        if names is not None and not _are_names(names)
    ]
    if (linear_names is None) != (dnn_names is None):
        missing, alone = ("linear", "DNN") if linear_names is None else ("dnn", "Linear")
        faults.append(
            f"{missing}_feature_columns is missing: name the features of both parts, or of none, where each reads all; "
            f"of one part alone there are {alone}Classifier and {alone}Regressor"
        )
    return faults


def _are_names(names: Any) -> bool:
    return (
        isinstance(names, Sequence)
        and not isinstance(names, str)
        and bool(names)
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names)
    )


NumClasses = Annotated[
    int | None,
    Key("Number of classes; labels are 0 to n_classes - 1; null: as many as the label has words, else 2.", ge=2),
]
WeightColumn = Annotated[
    str | None,
    Key("Feature of arrays that is the weights of the examples; of tabular files it is the weight of the input."),
]
LabelVocabulary = Annotated[
    Sequence[str] | None,
    Key("Words of the classes, where labels of arrays are words; of tabular files they are the classes of the label."),
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
