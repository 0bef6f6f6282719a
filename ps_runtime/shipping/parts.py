"""Inspects the parts of a value of the program: which part cannot travel, and a digest of its code."""

from __future__ import annotations

import copyreg
import functools
import hashlib
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NewType, ParamSpec, TypeVar, TypeVarTuple

import numpy as np

from psflow.ps_runtime.shipping.own_modules import ENGINE, global_names, imported_names, is_own

TYPING = (NewType, ParamSpec, TypeVar, TypeVarTuple)

Reduced = tuple[Any, ...]


def typing_reduced(obj: Any) -> Reduced:
    """Return the reduction of a type parameter, or of a NewType."""
    arguments: tuple[Any, ...] = (obj.__name__,)
    options = {}
    if isinstance(obj, NewType):
        arguments += (obj.__supertype__,)
    elif isinstance(obj, ParamSpec | TypeVar):
        arguments += getattr(obj, "__constraints__", ())
        options = {name: getattr(obj, f"__{name}__") for name in ("bound", "covariant", "contravariant")}
    return _parameter, (type(obj), arguments, options), {"__module__": obj.__module__}


def _parameter(kind: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    return kind(*arguments, **options)


def enum_reduced(reduced: Reduced, kind: type[Enum]) -> Reduced:
    """Return `reduced`, of cloudpickle, for an enumeration that is made without members, which are then filled in.

    cloudpickle makes members from their values, without running ``__init__`` and ``__new__``.
    """
    make, (bases, name, qualname, _, *rest), (values, slots), _, _, fill = reduced
    known = {name: vars(kind)[name] for name in (*kind.__members__, "_generate_next_value_") if name in vars(kind)}
    members = kind._member_map_
    known |= {"_member_names_": kind._member_names_, "_member_type_": kind._member_type_}  # type: ignore[attr-defined]
    found = {value: one for value, one in kind._value2member_map_.items() if one._name_ in members}
    known |= {"_value2member_map_": found, "_member_map_": members}  # last: no member can be set afterwards
    return make, (bases, name, qualname, {}, *rest), ({**values, **known}, slots), functools.partial(_fill_enum, fill)


def _fill_enum(fill: Callable[..., Any], kind: type[Enum], state: tuple[Mapping[str, Any], Any]) -> None:
    there = vars(kind)["_member_map_"]  # the class came with another pickle
    fill(kind, ({name: value for name, value in state[0].items() if name not in there}, state[1]))


def member_reduced(member: Enum) -> Reduced:
    """Return the reduction of a member of a travelling enumeration, which is made and then filled."""
    kind = type(member)
    if kind._member_map_.get(member._name_) is not member:  # a combination of flags
        return kind, (member._value_,)
    reduced: Reduced = object.__reduce_ex__(member, pickle.HIGHEST_PROTOCOL)  # type: ignore[assignment]
    make, arguments, *states = reduced
    if make is copyreg.__newobj__:  # type: ignore[attr-defined]
        arguments = arguments[1:]
    elif make is not kind:
        raise pickle.PicklingError(f"{member!r} is made by {make!r}")
    data_type = kind._member_type_  # type: ignore[attr-defined]
    slots = states[0][1] if states and isinstance(states[0], tuple) else {}
    state = {name: None if name == "_inverted_" else value for name, value in vars(member).items()} | slots  # a cache
    return _member, (kind, member._name_, data_type, arguments), state, None, None, _fill_member


def _member(kind: type[Enum], name: str, data_type: type, arguments: tuple[Any, ...]) -> Any:
    known = vars(kind).get("_member_map_", {}).get(name)
    return data_type.__new__(kind, *arguments) if known is None else known


def _fill_member(member: Enum, state: Mapping[str, Any]) -> None:
    """Set the attributes of a member, unless its enumeration existed before."""
    if vars(type(member)).get("_member_map_", {}).get(state["_name_"]) is not member:
        for name, value in state.items():
            object.__setattr__(member, name, value)


def sentinel(obj: object) -> tuple[str, str] | None:
    """Return module and name of a stateless object of a library that may be compared by ``is``."""
    kind = type(obj)
    if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
        return None
    if getattr(obj, "__dict__", None) or obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)[1:] != ((kind,), None, None, None):
        return None
    place = _plain_objects(len(sys.modules)) if kind is object else _held_by(kind.__module__)
    module, name = place.get(id(obj), ("", ""))
    return (module, name) if module and getattr(sys.modules.get(module), name, None) is obj else None


def _held_by(name: str) -> dict[int, tuple[str, str]]:
    module = sys.modules.get(name)
    if not isinstance(module, ModuleType) or is_own(module):
        return {}
    return {id(value): (name, key) for key, value in list(vars(module).items())}


@functools.lru_cache(maxsize=1)
def _plain_objects(num_modules: int) -> dict[int, tuple[str, str]]:
    """Return where libraries hold plain instances of `object`, given the number of modules."""
    held = (_held_by(name) for name in list(sys.modules))
    return {
        key: place
        for one in held
        for key, place in one.items()
        if type(vars(sys.modules[place[0]]).get(place[1])) is object
    }


Constant = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
MAX_BYTES, MAX_ITEMS, MAX_DEPTH = 1 << 26, 100_000, 20
"""Maximum size of arrays and containers in the digest of the code."""
Part = tuple[str, Any]


def culprit(value: object, can_travel: Callable[[object], bool]) -> tuple[str, object]:
    """Return the innermost part of `value` that cannot travel, and its location; `value` itself if none is found."""
    places: list[str] = []
    seen = {id(value)}
    whole = f"{type(value).__qualname__}."
    while True:
        faulty = ((place, part) for place, part in _parts(value) if id(part) not in seen and not can_travel(part))
        found = next(faulty, None)
        if found is None:
            return ", ".join(places).removeprefix(whole), value
        seen.add(id(found[1]))
        places.append(found[0])
        value = found[1]


def code_digest(*values: object) -> str | None:
    """Return a digest of the user's code that `values` reach; None if they reach none.

    It covers functions and classes of the program, and the numbers and texts that they read as globals, alone or in
    lists, dictionaries, sets and arrays of numpy, but no comments and positions in files. Python versions with
    different byte code give different digests.
    """
    found: set[str] = set()
    seen: dict[int, object] = {}
    left: list[object] = [*values]
    while left:
        value = left.pop()
        if id(value) in seen or _has_no_code(value):
            continue
        seen[id(value)] = value  # a reference keeps the id unique
        is_code = isinstance(value, FunctionType | type | ModuleType) and _is_of_program(value)
        if isinstance(value, FunctionType) and is_code:
            found.add(f"{value.__module__}.{value.__qualname__} = {_code_facts(value.__code__)}")
        parts = list(_parts(value))
        if is_code:
            facts = ((place, _plain_facts(part, iter(range(MAX_ITEMS)))) for place, part in parts)
            found |= {f"{place} = {known}" for place, known in facts if known is not None}
        left += [part for _, part in parts]
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()[:16] if found else None


def _parts(value: object) -> Iterator[Part]:
    """Yield the parts of `value`, each with a description of its location."""
    match value:
        case FunctionType():
            yield from _parts_of_function(value) if _is_of_program(value) else ()
        case functools.partial():
            yield "its function", value.func
            yield from ((f"argument {i} of it", part) for i, part in enumerate(value.args))
            yield from ((f"its argument {name!r}", part) for name, part in value.keywords.items())
        case MethodType():
            yield f"the method {value.__func__.__qualname__}", value.__func__
            yield f"the {type(value.__self__).__qualname__} of {value.__func__.__qualname__}", value.__self__
        case ModuleType():
            yield from _members(vars(value), f"global {{!r}} of {value.__name__}") if is_own(value) else ()
        case type():
            if _is_of_program(value):
                yield from _members(vars(value), f"attribute {{!r}} of {value.__qualname__}")
                yield from ((f"the base {base.__qualname__}", base) for base in value.__bases__)
        case Mapping():
            yield from ((f"the value of {key!r}", part) for key, part in value.items())
        case list() | tuple() | set() | frozenset():
            yield from ((f"item {i}", part) for i, part in enumerate(value))
        case staticmethod() | classmethod():
            yield "its function", value.__func__
        case property():
            yield "its getter", value.fget
            yield "its setter", value.fset
        case functools._lru_cache_wrapper():
            yield "its function", value.__wrapped__
        case _:
            yield from _parts_of_instance(value)


def _members(names: Mapping[str, Any], place: str) -> Iterator[Part]:
    for name, part in list(names.items()):
        if not (name.startswith("__") and name.endswith("__")) or callable(part):
            yield place.format(name), part


def _parts_of_function(function: FunctionType) -> Iterator[Part]:
    name, module = function.__qualname__, function.__module__
    for key in global_names(function):
        yield f"global {key!r} of {module}", function.__globals__[key]
    for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"variable {key!r} of {name}", cell.cell_contents
        except ValueError:  # the variable is not set yet
            continue
    for i, default in enumerate(function.__defaults__ or ()):
        yield f"default {i} of {name}", default
    for key, default in (function.__kwdefaults__ or {}).items():
        yield f"default {key!r} of {name}", default
    for key in imported_names(function):
        if is_own(imported := sys.modules.get(key)):
            yield f"module {key}", imported


def _parts_of_instance(value: object) -> Iterator[Part]:
    kind = type(value)
    if kind.__module__.partition(".")[0] != ENGINE and not _is_of_program(kind):
        return
    names = {**getattr(value, "__dict__", {})}
    if is_dataclass(value):
        names |= {field.name: getattr(value, field.name) for field in fields(value) if hasattr(value, field.name)}
    yield from ((f"{kind.__qualname__}.{name}", part) for name, part in names.items())
    yield f"the class {kind.__qualname__}", kind


def _is_of_program(value: Any) -> bool:
    module = sys.modules.get(str(getattr(value, "__module__", None) or getattr(value, "__name__", None)))
    return module is None or is_own(module)


def _has_no_code(value: Any) -> bool:
    """Return whether a container, possibly of millions of items, has only numbers and texts."""
    items = value.values() if type(value) is dict else value
    return type(value) in (dict, list, tuple, set, frozenset) and {*map(type, items)} <= {*Constant}


def _plain_facts(value: Any, left: Iterator[int], depth: int = 0) -> str | None:
    """Return facts that identify numbers, texts and containers of them; None for other values and large ones."""
    kind = type(value)
    if next(left, None) is None or depth > MAX_DEPTH:
        return None
    if kind in Constant or isinstance(value, np.generic):
        return repr(value)
    if kind is np.ndarray and not value.dtype.hasobject and value.nbytes <= MAX_BYTES:
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if kind not in (dict, list, tuple, set, frozenset):
        return None
    items: list[str] = []
    for item in value.items() if kind is dict else value:
        if (facts := _plain_facts(item, left, depth + 1)) is None:
            return None
        items.append(facts)
    return f"{kind.__name__} {items if kind in (list, tuple) else sorted(items)}"


def _code_facts(code: CodeType) -> str:
    constants = [_constant_facts(constant) for constant in code.co_consts]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return f"{code.co_code.hex()} {constants} {names} {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags}"


def _constant_facts(constant: object) -> str:
    if isinstance(constant, CodeType):
        return f"({_code_facts(constant)})"
    if isinstance(constant, frozenset):
        return repr(sorted(map(repr, constant)))
    return repr(constant)
