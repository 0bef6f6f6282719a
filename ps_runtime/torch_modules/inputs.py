"""Batches as the arguments of a torch module's forward, and as the targets of a loss."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, is_typeddict

import numpy as np
import torch
from numpy.typing import NDArray

from psflow.ps_runtime.data.user_code import user_error
from psflow.ps_runtime.errors import InputError, ModelFnError, PsflowError, did_you_mean
from psflow.ps_runtime.model.canned.features import Ids, read_features
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.schema_enforcement import listed_names

with warnings.catch_warnings():  # arrays of a batch, and pulled values, may be read-only; torch says so once a process
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(b"\0", np.uint8))

NEAR = 0.8
"""Least similarity of a feature to a parameter whose name it should have had."""
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class ForwardArguments:
    """Chooses the features that a module's forward takes.

    An array is its only argument. Of features by name, forward takes those whose names its parameters have. A forward
    that names none of them takes the only feature; or by the annotation of its only parameter, all features by name for
    a ``dict`` or a ``Mapping``, or side by side as ``(batch, k)``, sorted by name as for canned models, for a
    ``torch.Tensor``. Layers of torch take tensors.
    """

    def __init__(self, forward: Callable[..., Any], name: str) -> None:
        self._name = name
        parameters = list(_parameters(forward))
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self._names = [p.name for p in parameters if p.kind in by_name]
        self._required = [p.name for p in parameters if p.kind in by_name and p.default is p.empty]
        self._takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        first = next((p for p in parameters if p.kind in (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL)), None)
        self._first = "inputs" if first is None else first.name
        kind = None if first is None else first.annotation
        self._takes_mapping = _is_a(kind, Mapping, ("dict", "mapping"))
        of_torch = str(getattr(forward, "__module__", "")).startswith("torch.")
        self._takes_tensor = of_torch or _is_a(kind, torch.Tensor, ("tensor",))

    def of(self, features: Any, schema: InputSchema, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named arguments for a batch.

        Raises InputError if a required parameter has no feature, a feature is not numeric, or the features could be
        meant in two ways.
        """
        if not isinstance(features, Mapping):
            return [tensor(features, "the features", dtype)], {}
        weight = schema.weight
        names = [name for name in schema.names if name != weight] or list(features)
        if self._takes_mapping:
            return [{name: tensor(features[name], f"feature {name!r}", dtype) for name in names}], {}
        taken = [name for name in names if self._takes_any or name in self._names]
        is_by_name = bool(taken) or len(self._required) > 1
        self._check_names(names, taken, self._required if is_by_name else [])
        if is_by_name:
            return [], {name: tensor(features[name], f"feature {name!r}", dtype) for name in taken}
        if len(names) == 1:
            return [tensor(features[names[0]], f"feature {names[0]!r}", dtype)], {}
        if not self._takes_tensor:
            raise InputError(
                (
                    f"forward of {self._name} takes {self._first!r}, but the features are "
                    f"{', '.join(map(repr, names))}: name its parameters after the features, or annotate "
                    f"{self._first}: dict for the features by name, {self._first}: torch.Tensor for all side by side",
                )
            )
        return [tensor(self._side_by_side(features, schema), "the features", dtype)], {}

    def hint(self, features: Any, positional: Sequence[Any], cause: BaseException | None) -> str:
        """Return how forward gets its features by name, if it failed as one that takes its only tensor for a dict."""
        is_alone = (
            isinstance(features, Mapping) and bool(positional) and not (self._takes_mapping or self._takes_tensor)
        )
        if not is_alone or not isinstance(cause, TypeError | IndexError | AttributeError):
            return ""
        return (
            f"; {self._first} is the only feature of the input as a tensor: annotate {self._first}: dict to take "
            "features by name"
        )

    def _check_names(self, names: Sequence[str], taken: Sequence[str], required: Sequence[str]) -> None:
        """Refuse a parameter without a feature, and a feature that nearly has the name of an optional parameter."""
        spare = [name for name in names if name not in taken]
        faults = [
            f"forward of {self._name} takes {name!r}, but the input has no such feature"
            f"{did_you_mean(name, spare) or listed_names('feature', names)}"
            for name in required
            if name not in taken
        ]
        optional = [name for name in self._names if name not in taken and name not in self._required]
        faults += [
            f"forward of {self._name} takes no {name!r}: rename the feature, or leave it out{near}"
            for name in spare
            if (near := did_you_mean(name, optional, NEAR))
        ]
        if faults:
            raise InputError(tuple(faults))

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


def _parameters(forward: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    """Return the parameters of a forward; of a scripted or traced module by its schema."""
    if not isinstance(forward, torch.ScriptMethod):
        try:
            return inspect.signature(forward, eval_str=True).parameters.values()
        except Exception:  # a text that is no annotation where it stands, such as a name imported for type checkers
            return inspect.signature(forward).parameters.values()
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    return [
        inspect.Parameter(one.name, kind, default=None if one.has_default_value() else empty, annotation=str(one.type))
        for one in forward.schema.arguments[1:]
    ]


def _is_a(annotation: Any, kind: type, words: Sequence[str]) -> bool:
    """Return whether an annotation allows instances of `kind`; of a text that is none of Python, whether it says so."""
    if isinstance(annotation, str):
        return any(word in annotation.lower() for word in words)
    origin = get_origin(annotation)
    if origin in (Annotated, Union, UnionType):
        return any(_is_a(each, kind, words) for each in get_args(annotation))
    found = annotation if origin is None else origin
    return isinstance(found, type) and (issubclass(found, kind) or (kind is Mapping and is_typeddict(found)))


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


def call(function: Callable[..., Any], mode: Any, /, *arguments: Any, **named: Any) -> Any:
    """Return the result of the user's forward or loss; ModelFnError with its line and the shapes if it fails."""
    try:
        return function(*arguments, **named)
    except PsflowError:
        raise
    except Exception as cause:
        inner = function.forward if isinstance(function, torch.nn.Module) else function
        when = f"in {mode} mode for {_arguments(inner, arguments, named)}"
        raise user_error(inner, ModelFnError, when, cause, in_any_file=True) from cause


def _arguments(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """Return the arguments of a call with their names, types and shapes."""
    try:
        given = inspect.signature(function).bind(*arguments, **named).arguments
    except (TypeError, ValueError):  # they do not fit, or the function has no signature
        given = {f"argument {place}": value for place, value in enumerate(arguments)} | dict(named)
    return ", ".join(f"{name} {_form(value)}" for name, value in given.items()) or "no arguments"


def _form(value: Any) -> str:
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_form(one)}' for name, one in value.items())}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_form, value))})"
    return type(value).__name__
