"""Nests, the elements of a data set: an array, a dict of arrays, or a tuple such as (features, labels)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from psflow.ps_runtime.data.user_code import misfit, user_error
from psflow.ps_runtime.errors import InputError, PsflowError

NUMBERS, INTEGERS = "biuf", "biu"
"""Kinds of numeric numpy dtypes, booleans included."""


def map_nest(function: Callable[[Any], Any], nest: Any) -> Any:
    """Return a nest with `function` applied to all leaves, which are neither tuples nor mappings."""
    if isinstance(nest, tuple):
        return tuple(map_nest(function, part) for part in nest)
    if isinstance(nest, Mapping):
        return {name: map_nest(function, part) for name, part in nest.items()}
    return function(nest)


def leaves(nest: Any) -> Iterator[Any]:
    """Yield all leaves of a nest, which are neither tuples nor mappings."""
    if isinstance(nest, tuple | Mapping):
        for part in nest.values() if isinstance(nest, Mapping) else nest:
            yield from leaves(part)
    else:
        yield nest


def owned(nest: Any) -> Any:
    """Return a nest that does not change when its producer reuses its arrays or lists."""
    return map_nest(_own, nest)


def _own(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return copy.deepcopy(value) if isinstance(value, list) else value


def call_with(function: Callable[..., Any], element: Any, place: Callable[[], str]) -> Any:
    """Call a function of the user with an element; the parts of a tuple are its arguments.

    `place` names the element in the InputError that replaces any exception of `function`.
    """
    arguments = element if isinstance(element, tuple) else (element,)
    try:
        return function(*arguments)
    except PsflowError:
        raise
    except Exception as cause:  # StopIteration, too, which would end the reading
        if isinstance(cause, TypeError) and (sentence := misfit(function, len(arguments))):
            raise InputError((f"{sentence} for {place()}; the parts of a tuple are its arguments",)) from None
        raise user_error(function, InputError, f"for {place()}", cause) from cause


def stacked(elements: list[Any], where: str) -> Any:
    """Return elements as one batch: tuples as a tuple, mappings as a dict, anything else as an array.

    Booleans, integers and floats become the dtype that holds all of them, as numpy promotes them.

    Raises InputError if they are not alike, such as numbers beside texts, or integers that would become floats; `where`
    names them.
    """
    head = elements[0]
    if isinstance(head, tuple):
        if any(not isinstance(element, tuple) or len(element) != len(head) for element in elements):
            raise InputError((f"{where}: expected tuples of {len(head)}, as the first of them is",))
        return tuple(stacked([element[i] for element in elements], where) for i in range(len(head)))
    if isinstance(head, Mapping):
        if any(not isinstance(element, Mapping) or element.keys() != head.keys() for element in elements):
            raise InputError((f"{where}: expected features {', '.join(head)} in each, as the first of them has",))
        return {name: stacked([element[name] for element in elements], f"{where}, {name!r}") for name in head}
    arrays = [_as_array(element, where) for element in elements]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise InputError((f"{where}: expected values of one shape, got {' and '.join(map(str, sorted(shapes)))}",))
    if fault := _fault_of_dtypes(list(dict.fromkeys(array.dtype for array in arrays))):
        raise InputError((f"{where}: {fault}",))
    return np.stack(arrays)


def _fault_of_dtypes(dtypes: list[np.dtype[Any]]) -> str:
    """Return why values of these dtypes cannot share an array; "" if they can: numbers and booleans are promoted."""
    got = " and ".join(map(str, dtypes))
    if len({"n" if dtype.kind in NUMBERS else dtype.kind for dtype in dtypes}) > 1:
        return f"expected values of one kind, such as numbers or texts, got {got}; return one kind for all records"
    if all(dtype.kind in INTEGERS for dtype in dtypes) and np.result_type(*dtypes).kind == "f":
        return f"expected integers that fit one dtype, got {got}; return one dtype for all records"
    return ""


def _as_array(value: Any, where: str) -> Any:
    try:
        array = np.asarray(value)
    except ValueError as error:  # a list with rows of different lengths
        raise InputError((f"{where}: expected values that make an array: {error}",)) from None
    if array.dtype.hasobject:
        kind = type(value).__name__
        raise InputError((f"{where}: expected numbers, booleans or texts, got {kind}; return a value for each record",))
    return array
