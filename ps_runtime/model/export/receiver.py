"""Receives requests of an export: the arrays of clients, and the features that a function computes from them.

A ``serving_input_receiver_fn`` is a function without arguments. It requests the arrays of a request with `placeholder`,
like a model_fn requests the variables of a checkpoint with `get_variable`. psflow calls it once on examples, to find
the arrays that clients must send, and once for each request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.model.calls.scope import is_in_model_fn
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.schema import ANY_LENGTH, ArraySpec
from psflow.ps_runtime.specs.schema_enforcement import enforce_arrays

FEATURE = "feature"
INPUT = "input"
"""TensorFlow's names for a feature, and an array of a client, without a name."""


@dataclass(frozen=True, slots=True)
class ServingInputReceiver:
    """The result of a serving_input_receiver_fn.

    Parameters
    ----------
    features : mapping of str to array of shape (rows, ...), or such an array
        The features of the model, as the training input had them: raw columns, stored numbers. An array without a name
        is the feature ``feature``; see `TensorServingInputReceiver`.
    receiver_tensors : mapping of str to array, or array
        Arrays that `placeholder` returned, by the names that clients use. An array without a name is ``input``.
    receiver_tensors_alternatives : None
        Must be None: clients cannot send an array that a function computes.

    Raises
    ------
    UsageError
        If something is missing; an ArgumentTypeError if it has another type.
    """

    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: None = None

    def __post_init__(self) -> None:
        faults = ArgumentFaults("ServingInputReceiver: ")
        object.__setattr__(self, "features", _named(faults, "features", FEATURE, self.features))
        _check_receivers(self, faults)


@dataclass(frozen=True, slots=True)
class TensorServingInputReceiver:
    """Like `ServingInputReceiver`, for a model that reads one array without a name."""

    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: None = None

    def __post_init__(self) -> None:
        faults = ArgumentFaults("TensorServingInputReceiver: ")
        if not isinstance(self.features, np.ndarray):
            faults.add_type("features", "an array", self.features)
        _check_receivers(self, faults)


Receiver = ServingInputReceiver | TensorServingInputReceiver
ServingInputReceiverFn = Callable[[], Receiver]


@dataclass(frozen=True, eq=False, slots=True)
class Placeholder:
    """An array that each run of a session is fed: a key of its ``feed_dict``."""

    spec: ArraySpec
    example: NDArray[Any]
    """One row, for calls of model_fn before there is a batch."""

    def taken(self, value: Any) -> NDArray[Any]:
        """Return a fed value as the model reads it, ``(rows, ...)``; an InputError if it does not fit."""
        try:
            array = np.asarray(value, np.str_ if self.spec.is_text else self.spec.dtype)
        except (TypeError, ValueError) as error:
            raise InputError((f"{self.spec.name} is fed {type(value).__name__}: {error}",)) from None
        if array.ndim == 0 or array.shape[1:] != self.spec.shape:
            expected = ", ".join(["rows", *map(str, self.spec.shape)])
            raise InputError((f"{self.spec.name} is fed shape {list(array.shape)}, expected [{expected}]",))
        return array


def placeholder(dtype: DTypeLike, shape: Sequence[int | None], name: str | None = None, *, example: Any = None) -> Any:
    """Return an array of the request, or declare an array that a training loop feeds.

    A serving_input_receiver_fn gets the array. Outside of it and of model_fn the result is a key of the ``feed_dict``
    of `MonitoredTrainingSession.run`.

    Parameters
    ----------
    dtype : dtype
        A dtype of numbers or booleans, or ``str``.
    shape : sequence of int or None
        None, for any number of rows; then the shape of a row. In a serving_input_receiver_fn, None in that shape takes
        rows of any length, one for all rows of a request, which the function pads to that of the training.
    name : str, optional
        Its name in errors. Clients use its name in ``receiver_tensors``.
    example : value of one row, optional
        An example for calling the function before there is a request; default: 0. Required for text.

    Returns
    -------
    array of shape (rows, ...), or a key

    Raises
    ------
    UsageError
        If it is called in a model_fn, or an argument is invalid.

    Examples
    --------
    >>> def lines():
    ...     line = placeholder(str, [None], example="0.5;red")
    ...     x = np.array([text.split(";")[0] for text in line], np.float32)
    ...     return ServingInputReceiver({"x": x}, {"line": line})
    """
    call = _current.get()
    if call is None and is_in_model_fn():
        raise UsageError(("placeholder: a model_fn takes its arrays as features and labels; call it outside",))
    number = "" if call is None else f" {len(call.asked)}"
    place = f"placeholder{number}" if name is None else f"placeholder {name!r}"
    spec = _asked(place, dtype, shape, may_be_open=call is not None)
    return Placeholder(spec, _example(spec, example)) if call is None else call.take(spec, example)


@dataclass(frozen=True, slots=True)
class RawServingInput:
    """Receives the features unchanged; made by `build_raw_serving_input_receiver_fn`."""

    dtypes: Mapping[str, str]
    shapes: Mapping[str, Sequence[int]]

    def __call__(self) -> ServingInputReceiver:
        """Return the features of the request."""
        features = {name: placeholder(dtype, [None, *self.shapes[name]], name) for name, dtype in self.dtypes.items()}
        return ServingInputReceiver(features, features)


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> RawServingInput:
    """Return a serving_input_receiver_fn that receives the features unchanged.

    Parameters
    ----------
    features : mapping of str to array of shape (rows, ...)
        Only names, dtypes and shapes of rows matter, not the values.
    default_batch_size : None
        Must be None: any number of rows is served.

    Raises
    ------
    UsageError
        If a feature is not numbers or booleans; an ArgumentTypeError if an argument has another type.
    """
    faults = ArgumentFaults("build_raw_serving_input_receiver_fn: ")
    if default_batch_size is not None:
        faults.add("default_batch_size: any number of rows is served; leave it out")
    arrays = _named(faults, "features", None, features)
    for name, array in arrays.items():
        if isinstance(array, np.ndarray) and (array.dtype.kind not in "biuf" or not array.ndim):
            got = f"{array.dtype}{list(array.shape)}"
            faults.add(f"features[{name!r}] is {got}: expected numbers or booleans of shape (rows, ...)")
    faults.raise_any()
    return RawServingInput(
        {name: array.dtype.name for name, array in arrays.items()},
        {name: list(array.shape[1:]) for name, array in arrays.items()},
    )


@dataclass
class ReceiverCall:
    """One call of a serving_input_receiver_fn: on `given` arrays in the order of its placeholders, or on examples."""

    given: Sequence[NDArray[Any]] | None = None
    asked: list[ArraySpec] = field(default_factory=list)
    arrays: list[NDArray[Any]] = field(default_factory=list)
    _tokens: list[Token[ReceiverCall | None]] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Become the current call of `placeholder`, until the end of the block."""
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._tokens.pop())

    def take(self, spec: ArraySpec, example: Any) -> NDArray[Any]:
        """Return the array of the next placeholder."""
        if self.given is None:
            array = _example(spec, example)
        elif len(self.asked) < len(self.given):
            array = self.given[len(self.asked)]
        else:
            raise InputError((f"{spec.name} was not requested in the first call of its serving_input_receiver_fn",))
        self.asked.append(spec)
        self.arrays.append(array)
        return array


_current: ContextVar[ReceiverCall | None] = ContextVar("serving_input", default=None)


def _asked(place: str, dtype: DTypeLike, shape: Sequence[int | None], *, may_be_open: bool) -> ArraySpec:
    faults = ArgumentFaults(f"{place}: ")
    kind = _dtype(dtype)
    if kind is None:
        faults.add_type("dtype", "str, or a dtype of numbers or booleans such as np.float32", dtype)
    is_sequence = isinstance(shape, Sequence) and not isinstance(shape, str)
    sizes = list(shape[1:]) if is_sequence else []
    if (
        not is_sequence
        or not len(shape)
        or shape[0] is not None
        or any(type(size) not in (int, NoneType) for size in sizes)
    ):
        faults.add_type("shape", "None, for any number of rows, and the whole numbers of the shape of a row", shape)
    elif None in sizes and not may_be_open:
        faults.add(f"{place}: shape {list(shape)} has rows of any length, which only a serving_input_receiver_fn takes")
    faults.raise_any()
    assert kind is not None, "an invalid dtype is a fault"
    row = tuple(ANY_LENGTH if size is None else size for size in sizes)
    return ArraySpec(place, "str" if kind.kind == "U" else kind.name, row)


def _dtype(given: Any) -> np.dtype[Any] | None:
    """Return the dtype, or None if requests cannot have it."""
    if given is None:  # which numpy reads as float64
        return None
    try:
        dtype = np.dtype(given)
    except (TypeError, ValueError, SyntaxError):
        return None
    return dtype if dtype.kind in "biufU" else None


def _example(spec: ArraySpec, example: Any) -> NDArray[Any]:
    """Return one row for calling a function without a request."""
    if example is None and spec.dtype == "str":
        raise UsageError((f"{spec.name}: text has no obvious example; give one, such as example='0.5;red'",))
    shape = [1 if size == ANY_LENGTH else size for size in spec.shape]
    row = np.zeros(shape, spec.dtype) if example is None else np.asarray(example)
    if not spec.takes(row.shape) or (row.dtype.kind == "U") != (spec.dtype == "str"):
        expected = f"{spec.dtype}{list(spec.shape)}"
        raise UsageError((f"{spec.name}: the example is {row.dtype.name}{list(row.shape)}, expected {expected}",))
    [array] = enforce_arrays({spec.name: row[np.newaxis]}, (spec,), "the example")
    return array


def _named(faults: ArgumentFaults, name: str, single: str | None, given: Any) -> dict[str, Any]:
    """Return arrays by name; an array without a name becomes `single`, if that is not None."""
    if not isinstance(given, Mapping) and (single is None or given is None):
        faults.add_type(name, "a mapping of str to array", given)
        return {}
    named: dict[Any, Any] = dict(given) if isinstance(given, Mapping) else {single: given}
    if not named:
        faults.add(f"{name} is empty: expected at least one array")
    for key, array in named.items():
        if not isinstance(key, str):
            faults.add_type(f"a name of {name}", "a str", key)
        if not isinstance(array, np.ndarray):
            faults.add_type(f"{name}[{key!r}]", "an array", array)
    return named


def _check_receivers(receiver: Receiver, faults: ArgumentFaults) -> None:
    named = _named(faults, "receiver_tensors", INPUT, receiver.receiver_tensors)
    if receiver.receiver_tensors_alternatives is not None:
        faults.add(
            "receiver_tensors_alternatives: clients cannot send arrays that a function computes; export the model "
            "once more, with a function that receives them"
        )
    faults.raise_any()
    object.__setattr__(receiver, "receiver_tensors", named)
