"""Infers the types of the first JSON lines, and describes the fault of a line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from psflow.ps_runtime.columns.raw_types import LIST, LISTS, is_raw_type, wider_type
from psflow.ps_runtime.tabular_files.base import LARGEST_EXACT, InvalidValues, OnInvalid, RecordError
from psflow.ps_runtime.tabular_files.text_cells import MAX_SHOWN, inferred_type, most_invalid, value_fault

ADVICE = "correct the line, or leave the column out"
NUMBERS = ("int64", "float64")


def object_of(line: bytes, record: int) -> dict[str, Any]:
    """Return the object of a line.

    Raises RecordError if the line is not an object; `record` is its number.
    """
    try:
        value = json.loads(line)
    except UnicodeDecodeError:
        raise RecordError(f"expected UTF-8, got {line[:40]!r}; convert the file to UTF-8", record) from None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        got = line[:60].decode(errors="replace")
        hint = "; write each object of the list on its own line" if line.lstrip().startswith(b"[") else ""
        raise RecordError(f"expected a JSON object in each line, got {got!r}{hint}", record)
    return value


def first_types(lines: Sequence[bytes]) -> dict[str, str]:
    """Return the type of each key in some lines; a text if values have several types, or one that cannot be read.

    Values of other types than that of most are ignored if they are at most one in ten: they are invalid. Integers and
    fractions together are float64. Strings that are all dates, or all times, have such a type. Keys that are always
    null are float64, and lists without a value are `LIST`.

    Raises RecordError if a line is not an object.
    """
    values: dict[str, list[Any]] = {}
    for record, line in enumerate(lines):
        for name, value in object_of(line, record).items():
            values.setdefault(name, []).append(value)
    types = {}
    for name, given in values.items():
        kinds = _kinds_of_most([_kind(value) for value in given if value is not None])
        kind = _common(kinds)
        given = [value for value in given if value is None or _kind(value) in kinds]
        if "[" in kind and not any(item is not None for value in given if value is not None for item in value):
            kind = LIST
        if kind.startswith("float64") and any(_is_long(item) for item in _items(given)):
            kind = ("lists of " if "[" in kind else "") + "fractions and whole numbers beyond 2**53"
        types[name] = _type_of_strings(given) if kind == "string" else kind
    return types


def _items(values: Sequence[Any]) -> Iterator[Any]:
    """Yield values, with lists replaced by their items."""
    for value in values:
        yield from value if isinstance(value, list) else (value,)


def _is_long(value: Any) -> bool:
    """Return whether a value is a whole number that a float64 may not hold."""
    return isinstance(value, int) and abs(value) > LARGEST_EXACT


def _kinds_of_most(kinds: Sequence[str]) -> set[str]:
    """Return the kinds of most values, without rare ones that share no type with them."""
    counts = Counter(kinds)
    num_left = most_invalid(len(kinds))
    for kind, count in reversed(counts.most_common()):
        num_left -= count
        if is_raw_type(_common(set(counts))) or num_left < 0:
            break
        del counts[kind]
    return set(counts) if is_raw_type(_common(set(counts))) else set(kinds)


def _type_of_strings(given: Sequence[str | None]) -> str:
    """Return the type of strings: JSON has its own numbers and booleans, but no dates."""
    import pyarrow as pa

    found = inferred_type(pa.chunked_array([given], pa.string()))
    return found if found in ("date", "timestamp") else "string"


def _common(kinds: set[str]) -> str:
    """Return the common type of some kinds: the widest for numbers; float64 if there are none."""
    if len(kinds) <= 1:
        return next(iter(kinds), "float64")
    wider = {wider_type(kind) or kind for kind in kinds}
    if len(wider) == 1:
        return wider.pop()
    if all("[" in kind or kind == LIST for kind in kinds):  # lists of several lengths, some without a value
        lists = f"{_common({kind.partition('[')[0] for kind in kinds if kind != LIST})}[]"
        if lists in LISTS:
            return lists
    return " or ".join(sorted(kinds))


def _kind(value: Any) -> str:
    """Return the raw type of a value, or a text if it has none."""
    match value:
        case bool():
            return "bool"
        case int():
            return "int64" if -(2**63) <= value < 2**63 else "integer beyond int64"
        case float():
            return "float64"
        case str():
            return "string"
        case list():
            kind = _common({_kind(item) for item in value if item is not None})
            if not value or f"{kind}[]" not in LISTS:
                return LIST if not any(item is not None for item in value) else f"list of {kind}"
            return f"{kind}[{len(value)}]" if kind in NUMBERS else f"{kind}[]"
        case _:
            return "object"


def line_fault(line: bytes, types: Mapping[str, str], reason: str, record: int) -> RecordError:
    """Return the fault of a line that pyarrow rejects for `reason`."""
    try:
        values = object_of(line, record)
    except RecordError as error:
        return error
    for name, raw in types.items():
        value = values.get(name)
        if value is None or _is_value(value, raw):
            continue
        wider = wider_type(raw)
        widens = wider is not None and _kind(value) == wider
        return value_fault(name, raw, json.dumps(value)[:40], record, ADVICE, widens=widens)
    return RecordError(f"pyarrow rejects the line: {reason}", record)


def without_invalid(lines: bytes, types: Mapping[str, str], on_invalid: OnInvalid) -> bytes:
    """Return lines with null for the values that are not of the type of their column, which `on_invalid` receives.

    Raises RecordError if a line is not an object, or has a number for which a column has to widen.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    kept = []
    for record, line in enumerate(lines.split(b"\n")):
        values = object_of(line, record)
        given = {name: values[name] for name in types if values.get(name) is not None}
        invalid = {name: value for name, value in given.items() if not _is_value(value, types[name])}
        for name, value in invalid.items():
            shown = json.dumps(value)[:MAX_SHOWN]
            if _kind(value) == wider_type(types[name]):
                raise value_fault(name, types[name], shown, record, ADVICE, widens=True)
            found.setdefault(name, []).append((record, shown))
        kept.append(json.dumps(values | dict.fromkeys(invalid)).encode() if invalid else line)
    for name, cells in found.items():
        on_invalid(InvalidValues(name, np.array([row for row, _ in cells]), tuple(shown for _, shown in cells)))
    return b"\n".join(kept)


def _is_value(value: Any, raw: str) -> bool:
    """Return whether pyarrow reads a value as a raw type; the length of a list is not checked."""
    element, is_array, _ = raw.partition("[")
    if is_array:
        return isinstance(value, list) and all(item is None or _is_value(item, element) for item in value)
    match element:
        case "int64":
            return _kind(value) == "int64"
        case "float32" | "float64":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case _:
            return isinstance(value, str)
