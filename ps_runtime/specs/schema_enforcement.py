"""Converts features to the form of a model's training input, by name, for every input and in exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError, did_you_mean
from psflow.ps_runtime.specs.schema import MATRIX, ArraySpec, InputSchema

MAX_NAMES = 10
"""Number of names that an error lists."""
MAX_FAULTS = 2
"""A few unknown names may be misspelt: each is reported with the nearest; more belong to another input."""
NUMBERS = "biuf"
PAD = "if rows have different lengths, pad those of every batch to one: with -1 for ids, '' for strings"


def enforce_features(given: Any, schema: InputSchema, where: str) -> Any:
    """Return the features of `schema` from `given`, with its dtypes, without other features. Values are not scaled.

    Raises InputError with all faults: a missing feature, rows of another shape, values that its dtype cannot hold, or
    ids outside those of the training input.
    """
    names = schema.names
    if not names:
        given = {"": _single(given, where)}
    elif not isinstance(given, Mapping):
        if len(names) > 1:
            expected = ", ".join(map(repr, names[:MAX_NAMES]))
            raise InputError((f"{where} is one array: expected the features {expected} by name",))
        given = {names[0]: given}
    faults = missing_faults(where, "feature", names, list(given)) if names else []
    features = {spec.name: _cast(given[spec.name], spec, where, faults) for spec in schema.features if not faults}
    if faults:
        raise InputError(tuple(faults))
    return features if names else features[""]


def enforce_arrays(given: Any, specs: Sequence[ArraySpec], where: str) -> list[NDArray[Any]]:
    """Return the arrays of `specs` from `given`, in order, with their dtypes, without other arrays.

    Raises InputError with all faults, as in `enforce_features`.
    """
    names = [spec.name for spec in specs]
    if not hasattr(given, "keys"):
        if len(names) > 1:
            expected = ", ".join(map(repr, names[:MAX_NAMES]))
            raise InputError((f"{where} is one array: expected the arrays {expected} by name",))
        given = {names[0]: given}
    faults = missing_faults(where, "array", names, list(given))
    arrays: list[NDArray[Any]] = []
    for spec in specs if not faults else ():
        try:
            column = _objects(given[spec.name]) if spec.dtype == "str" else stacked(given[spec.name])
        except ValueError:
            faults.append(f"{where}: array {spec.name!r} has rows of different shapes, expected {list(spec.shape)}")
        else:
            array = _cast(column, spec, where, faults, "array")
            arrays += [] if array is None else [array]
    if faults:
        raise InputError(tuple(faults))
    return arrays


def stacked(column: Any) -> NDArray[Any]:
    """Return a column of a DataFrame as an array, including columns of arrays or lists."""
    array = np.asarray(column)
    is_nested = array.dtype == object and len(array) > 0 and isinstance(array[0], np.ndarray | list)
    return np.stack(list(array)) if is_nested else array


def scale_features(features: Any, schema: InputSchema, where: str) -> Any:
    """Return features scaled as in training, given stored values.

    Raises InputError if they are not stored values: they may be scaled already.
    """
    if schema.scaling is None:
        return features
    stored = features[MATRIX]
    if (fault := schema.scaling.fault(stored)) is not None:
        hint = f"the model itself scales them to {schema.scaling}"
        raise InputError((f"{where}: feature {MATRIX!r} {fault}; {hint}",))
    return {**features, MATRIX: schema.scaling.apply(stored)}


def missing_faults(where: str, noun: str, asked: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return a sentence for each requested name that is unknown, or one for many: then it is another input.

    Requested names are not suggested for others.
    """
    there, wanted = set(known), set(asked)  # there may be thousands
    missing = [name for name in dict.fromkeys(asked) if name not in there]
    if len(missing) > MAX_FAULTS:
        some = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
        return [f"{where} lacks {len(missing)} of {len(asked)} {noun}s: {some}{listed_names(noun, known)}"]
    free = [name for name in known if name not in wanted]
    return [
        f"{where} has no {noun} {name!r}{did_you_mean(name, free) or listed_names(noun, known)}" for name in missing
    ]


def listed_names(noun: str, names: Sequence[str]) -> str:
    """Return the end of a sentence on an object with `names`."""
    return f"; its {noun}s are {', '.join(map(repr, names[:MAX_NAMES]))}{', ...' if len(names) > MAX_NAMES else ''}"


def id_fault(ids: NDArray[Any], num_ids: int) -> str | None:
    """Return a sentence on an integer of `ids` outside [0, num_ids); None if there is none."""
    if not ids.size or (ids.min() >= 0 and ids.max() < num_ids):
        return None
    is_id = (ids >= 0) & (ids < num_ids)
    row = int(np.argmin(is_id.reshape(len(ids), -1).all(axis=1)))
    value = ids[row][~is_id[row]].flat[0]
    return f"has the id {value.item()} in row {row}, expected ids in [0, {num_ids})"


def _single(given: Any, where: str) -> Any:
    if not isinstance(given, Mapping):
        return given
    if len(given) != 1:
        raise InputError((f"{where} has {len(given)} arrays, expected one: the model reads a single one",))
    return next(iter(given.values()))


def _cast(given: Any, spec: ArraySpec, where: str, faults: list[str], noun: str = "feature") -> NDArray[Any] | None:
    wanted = np.dtype(spec.dtype)
    array: NDArray[Any] = np.atleast_1d(_objects(given) if wanted.kind == "U" else np.asarray(given))
    what = f"{where}: {noun} {spec.name!r}" if spec.name else f"{where}: the {noun}"
    if not spec.takes(array.shape[1:]):
        hint = f"; {PAD}" if array.ndim > 1 and array.ndim == 1 + len(spec.shape) else ""
        faults.append(f"{what} has rows of shape {list(array.shape[1:])}, expected {list(spec.shape)}{hint}")
        return None
    cast = _as_text(array, what, faults) if wanted.kind == "U" else _cast_values(array, wanted, what, faults)
    if cast is not None and spec.num_ids and (fault := id_fault(cast, spec.num_ids)) is not None:
        faults.append(f"{what} {fault} as in training")
    return cast


def _cast_values(array: NDArray[Any], wanted: np.dtype[Any], what: str, faults: list[str]) -> NDArray[Any] | None:
    if np.can_cast(array.dtype, wanted):
        return array.astype(wanted, copy=False)
    if array.dtype.kind not in NUMBERS:
        faults.append(f"{what} has dtype {array.dtype}, expected {wanted}")
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(wanted)
    is_kept = _is_kept(array, cast)
    if not is_kept.all():
        row = int(np.argmin(is_kept.reshape(len(array), -1).all(axis=1)))
        value = array[row][~is_kept[row]].flat[0]
        faults.append(f"{what} has {value.item()!r} ({array.dtype}) in row {row}, which {wanted} cannot hold")
    return cast


def _objects(column: Any) -> NDArray[Any]:
    """Return a column of strings unchanged: numpy would convert a number among them to a string."""
    if isinstance(column, np.ndarray) and column.dtype != object:
        return column
    return np.array([column] if isinstance(column, str) else list(column), dtype=object)


def _as_text(array: NDArray[Any], what: str, faults: list[str]) -> NDArray[Any] | None:
    """Return an array of strings with dtype str; other values are not converted."""
    if array.dtype.kind == "U":
        return array
    for place, value in np.ndenumerate(array):
        if not isinstance(value, str):
            faults.append(f"{what} has {value!r} in row {place[0]}, expected text")
            return None
    return array.astype(str)


def _is_kept(array: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values the cast kept: whole numbers exactly, fractions up to rounding."""
    kept: NDArray[np.bool_]
    if cast.dtype.kind not in "biu":
        kept = np.isfinite(cast) | ~np.isfinite(array)
        return kept
    kept = (cast == array) & ((cast < 0) == (array < 0))
    if array.dtype.kind == "f":  # beyond that, neighbours coincide: the original may be another number
        kept &= np.abs(array) <= 2 ** (np.finfo(array.dtype).nmant + 1)
    return kept
