"""The base class and argument checks of canned Estimators, which bring their own model_fn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import deep_columns_faults, has_columns, linear_columns_faults
from psflow.ps_runtime.feature_columns.kinds import COMBINERS, FeatureColumn
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.layers import ActivationFn, activation_faults
from psflow.ps_runtime.model.canned.arguments import class_faults, count_faults, is_count, loss_faults
from psflow.ps_runtime.model.canned.base import Head, HeadSpec
from psflow.ps_runtime.model.canned.unscaled import unscaled_sentences
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.numeric import is_number
from psflow.ps_runtime.optimizers import Optimizer, optimizer_named
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import InputSchema

if TYPE_CHECKING:
    NamesOrColumns = FeatureColumn | Iterable[str] | Iterable[FeatureColumn]
else:
    NamesOrColumns = Sequence[str]  # a configuration has only names

if TYPE_CHECKING:
    OptimizerOrName = Optimizer | str
else:
    OptimizerOrName = Optimizer  # a configuration has keys for it


def classifier_faults(n_classes: Any, weight_column: Any, label_vocabulary: Any, loss_reduction: Any) -> list[str]:
    """Return the faults of the arguments of a classifier."""
    return [*class_faults(n_classes, label_vocabulary, at_least=2), *loss_faults(weight_column, loss_reduction)]


def regressor_faults(label_dimension: Any, weight_column: Any, loss_reduction: Any) -> list[str]:
    """Return the faults of the arguments of a regressor."""
    return [
        *count_faults("label_dimension", label_dimension, at_least=1),
        *loss_faults(weight_column, loss_reduction),
    ]


def head_faults(head: Any) -> list[str]:
    """Return the faults of a head."""
    if isinstance(head, Head):
        return []
    return [f"head is {head!r}, expected a Head such as MultiLabelHead(n_classes=3)"]


def units_faults(hidden_units: Any, name: str = "hidden_units") -> list[str]:
    """Return the faults of the units of hidden layers: a list of integers >= 1, which may be empty."""
    if isinstance(hidden_units, Sequence | np.ndarray) and all(is_count(n, at_least=1) for n in hidden_units):
        return []
    return [f"{name} is {hidden_units!r}, expected a list of integers >= 1"]


def optimizer_faults(optimizer: Any, example: str, name: str = "optimizer") -> list[str]:
    """Return the faults of an optimizer, or of its name; `example` shows how to create one."""
    try:
        given = optimizer_of(optimizer)
    except UsageError as error:
        return [f"{name}: {fault}" for fault in error.faults]
    if isinstance(given, Optimizer):
        return []
    return [f"{name} is {optimizer!r}, expected an Optimizer such as {example}, or the name of one"]


def optimizer_of(optimizer: Any) -> Any:
    """Return the optimizer of a name, and anything else as it is."""
    return optimizer_named(optimizer) if isinstance(optimizer, str) else optimizer


def hidden_faults(activation_fn: Any, dropout: Any, prefix: str = "") -> list[str]:
    """Return the faults of the activation function and the dropout of hidden layers."""
    faults = activation_faults(activation_fn, f"{prefix}activation_fn")
    if dropout is not None and not (is_number(dropout) and 0 <= dropout < 1):
        faults.append(f"{prefix}dropout is {dropout!r}, expected a number from 0 to below 1, or None")
    return faults


def combiner_faults(name: str, combiner: Any) -> list[str]:
    """Return the faults of the combiner of the weights of several ids."""
    return [] if combiner in COMBINERS else [f"{name} is {combiner!r}, expected {', '.join(COMBINERS)}"]


def parts_faults(linear_names: Any, dnn_names: Any) -> list[str]:
    """Return the faults of the features of the parts of a wide and deep model.

    Names or columns are given for both parts, or for neither.
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
            f"{missing}_feature_columns is missing: name the features of both parts, or of neither (each reads all); "
            f"for one part alone use {alone}Classifier or {alone}Regressor"
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
    Key("Number of classes; labels are 0 to n_classes - 1; null: as many as the label has class names, else 2.", ge=2),
]
LabelVocabulary = Annotated[
    Sequence[str] | None,
    Key("Class names, where labels of arrays are strings; for tabular files use the classes of the label."),
]
HiddenActivation = Annotated[ActivationFn, Key("Activation function of the hidden layers; null: none, as linear.")]
Dropout = Annotated[
    float | None,
    Key("Share of the outputs of hidden layers that are set to 0 in training; null: no dropout.", ge=0, lt=1),
]


class CannedEstimator(Estimator):
    """An Estimator whose head checks labels and weights.

    Parameters
    ----------
    model_fn : callable
        Has ``head`` among its params.
    head : HeadSpec or None
        Defines labels, loss, predictions and metrics.
    params : mapping
        The other hyper-parameters.
    model_dir, config, warm_start_from
        See `Estimator`.
    """

    def __init__(
        self,
        model_fn: Callable[..., EstimatorSpec],
        head: HeadSpec | None,
        params: Mapping[str, Any],
        model_dir: str | None,
        config: RunConfig | None,
        warm_start_from: str | WarmStartSettings | None,
    ) -> None:
        super().__init__(model_fn, model_dir, config, {"head": head, **params}, warm_start_from)

    def check_labels(self, labels: Any, where: str, input_schema: InputSchema) -> None:
        """Raise InputError if the labels of a whole data set do not fit the head."""
        head: HeadSpec = self.params["head"]
        head.reading(input_schema).check_labels(labels, where)

    def read_schema(self, schema: InputSchema, where: str) -> InputSchema:
        """Return a schema with the weights of the head; labels ``(batch, 1)`` and ``(batch,)`` are the same to it.

        Raises InputError if the weights do not fit the input.
        """
        head: HeadSpec = self.params["head"]
        return schema.weighted_by(head.weight_column, where).with_flat_labels()

    def doubts(self, features: Any, schema: InputSchema, where: str) -> tuple[str, ...]:
        """Return a warning if the model reads unscaled numbers."""
        return unscaled_sentences(features, schema, self.params, where)
