"""Batches as the arguments of a torch module's forward, and as the targets of a loss."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError, did_you_mean
from psflow.ps_runtime.model.canned.features import Ids, read_features
from psflow.ps_runtime.specs.schema import InputSchema

with warnings.catch_warnings():  # arrays of a batch, and pulled values, may be read-only; torch says so once a process
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(b"\0", np.uint8))

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class ForwardArguments:
    """Chooses the features that a module's forward takes.

    An array is its only argument. Of features by name, forward takes those whose names its parameters have. A forward
    that names none of them takes the only feature, or all features side by side as ``(batch, k)``, sorted by name as
    for canned models; or all of them by name, if its parameter is annotated as a ``dict`` or a ``Mapping``.
    """

    def __init__(self, forward: Callable[..., Any], name: str) -> None:
        self._name = name
        parameters = list(inspect.signature(forward).parameters.values())
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self._names = [p.name for p in parameters if p.kind in by_name]
        self._required = [p.name for p in parameters if p.kind in by_name and p.default is p.empty]
        self._takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        first = next((p for p in parameters if p.kind in (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL)), None)
        hint = "" if first is None else str(first.annotation).lower()
        self._takes_mapping = "dict" in hint or "mapping" in hint

    def of(self, features: Any, schema: InputSchema, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named arguments for a batch.

        Raises InputError if a required parameter has no feature, or a feature is not numeric.
        """
        if not isinstance(features, Mapping):
            return [tensor(features, "the features", dtype)], {}
        weight = schema.weight
        names = [name for name in schema.names if name != weight] or list(features)
        if self._takes_mapping:
            return [{name: tensor(features[name], f"feature {name!r}", dtype) for name in names}], {}
        taken = [name for name in names if self._takes_any or name in self._names]
        if taken:
            if missing := [name for name in self._required if name not in taken]:
                raise InputError(
                    (
                        f"forward of {self._name} takes {missing[0]!r}, which is no feature of the input"
                        f"{did_you_mean(missing[0], names)}",
                    )
                )
            return [], {name: tensor(features[name], f"feature {name!r}", dtype) for name in taken}
        if len(self._required) > 1:
            raise InputError(
                (
                    f"forward of {self._name} takes {', '.join(self._required)}, but the features are "
                    f"{', '.join(map(repr, names))}: name its parameters after the features, or take one parameter",
                )
            )
        if len(names) == 1:
            return [tensor(features[names[0]], f"feature {names[0]!r}", dtype)], {}
        return [tensor(self._side_by_side(features, schema), "the features", dtype)], {}

    def _side_by_side(self, features: Any, schema: InputSchema) -> NDArray[Any]:
        blocks = []
        for name, values in read_features(features, schema).items():
            if isinstance(values, Ids):
                raise InputError(
                    (
                        f"feature {name!r} holds ids, but forward of {self._name} takes all features as one matrix of "
                        f"numbers: name its parameters after the features, such as forward(self, {name}, ...)",
                    )
                )
            blocks.append(values.reshape(len(values), -1))
        return np.concatenate(blocks, axis=1)


def tensor(values: Any, what: str, dtype: torch.dtype) -> torch.Tensor:
    """Return an array as a tensor, without a copy where possible: floats as `dtype`, other numbers as they are.

    Raises InputError if it is not numeric.
    """
    if isinstance(values, torch.Tensor):
        found = values
    else:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise InputError(
                (f"{what}: expected numbers for a torch module, got {array.dtype}{list(array.shape)}; encode it",)
            )
        found = torch.from_numpy(np.ascontiguousarray(array) if min(array.strides, default=0) < 0 else array)
        found.of_feature = array  # rows of a table are pulled ahead for the ids of a feature
    return found.to(dtype) if found.is_floating_point() else found


def targets(labels: Any, dtype: torch.dtype) -> Any:
    """Return labels as tensors; of a mapping, by name."""
    if isinstance(labels, Mapping):
        return {name: tensor(values, f"label {name!r}", dtype) for name, values in labels.items()}
    return tensor(labels, "the labels", dtype)
