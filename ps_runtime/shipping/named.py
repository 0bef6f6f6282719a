"""Objects that Python pickles by a name, or by a value that finds them: type parameters, enumerations, sentinels."""

from __future__ import annotations

import copyreg
import functools
import pickle
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from types import ModuleType
from typing import Any, NewType, ParamSpec, TypeVar, TypeVarTuple

from psflow.ps_runtime.shipping.own_modules import is_own

__all__ = ["TYPING", "enum_reduced", "member_reduced", "sentinel", "typing_reduced"]

TYPING = (NewType, ParamSpec, TypeVar, TypeVarTuple)

Reduced = tuple[Any, ...]


def typing_reduced(obj: Any) -> Reduced:
    """Return what makes a type parameter, or a NewType, anew."""
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
    """Return `reduced`, of cloudpickle, with an enumeration that is made without members, which are then filled in.

    cloudpickle makes them of their values, without what ``__init__`` and ``__new__`` do.
    """
    make, (bases, name, qualname, _, *rest), (values, slots), _, _, fill = reduced
    known = {name: vars(kind)[name] for name in (*kind.__members__, "_generate_next_value_") if name in vars(kind)}
    members = kind._member_map_
    known |= {"_member_names_": kind._member_names_, "_member_type_": kind._member_type_}  # type: ignore[attr-defined]
    found = {value: one for value, one in kind._value2member_map_.items() if one._name_ in members}
    known |= {"_value2member_map_": found, "_member_map_": members}  # last: then no member can be set
    return make, (bases, name, qualname, {}, *rest), ({**values, **known}, slots), functools.partial(_fill_enum, fill)


def _fill_enum(fill: Callable[..., Any], kind: type[Enum], state: tuple[Mapping[str, Any], Any]) -> None:
    there = vars(kind)["_member_map_"]  # another pickle has brought the class
    fill(kind, ({name: value for name, value in state[0].items() if name not in there}, state[1]))


def member_reduced(member: Enum) -> Reduced:
    """Return what makes a member of an enumeration that travels, and then fills it."""
    kind = type(member)
    if kind._member_map_.get(member._name_) is not member:  # several flags at once
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
    """Let a member have its attributes, if it is not of an enumeration that was there before."""
    if vars(type(member)).get("_member_map_", {}).get(state["_name_"]) is not member:
        for name, value in state.items():
            object.__setattr__(member, name, value)


def sentinel(obj: object) -> tuple[str, str] | None:
    """Return where a library holds an object without a state, which may be compared by ``is``: module and name."""
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
    """Return where the instances of `object` itself are that libraries hold, as of so many modules."""
    held = (_held_by(name) for name in list(sys.modules))
    return {
        key: place
        for one in held
        for key, place in one.items()
        if type(vars(sys.modules[place[0]]).get(place[1])) is object
    }
