"""Pickles the definitions of the caller's program by value, so that they need not be importable elsewhere.

Installed packages, and psflow itself, travel by reference.
"""

from __future__ import annotations

import functools
import importlib
import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from types import CodeType, FunctionType, ModuleType
from typing import Any, Generic, TypeVar, final

import cloudpickle

from psflow.ps_runtime.collector import collector_at_rest
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.shipping.own_modules import ByValue, global_names, imported_names, is_own, own_module
from psflow.ps_runtime.shipping.parts import TYPING, culprit, enum_reduced, member_reduced, sentinel, typing_reduced
from psflow.ps_runtime.shipping.travelling_modules import TravellingModules

T = TypeVar("T")

FACTS = ("__package__", "__file__", "__path__", "__doc__")
OF_PYTHON = frozenset({*FACTS, "__name__", "__spec__", "__loader__", "__builtins__", "__cached__"})
LOCKS: dict[type, Callable[[], Any]] = {type(make()): make for make in (threading.Lock, threading.RLock)}
"""Types of which each process needs its own."""

OF_TYPES = ("builtins", "enum", "typing")
"""Base classes that inspect their subclasses, which they need for their work."""

_writing, _reading = threading.RLock(), threading.RLock()


def pickled(value: object, what: str) -> bytes:
    """Return `value` as bytes that `unpickled` reads in any process. Thread-safe.

    Raises UsageError if it cannot be pickled; names the faulty part.
    """
    with suppress(Exception):  # pickling an object may raise anything
        return _written(value)
    try:
        return _written(value, tries_members=True)
    except Exception as error:
        place, part = culprit(value, _can_travel)
        kind = f"{type(part).__module__}.{type(part).__qualname__}".removeprefix("builtins.")
        reason = f"{place} is a {kind} ({error})" if place else str(error)
        raise UsageError(
            (
                f"{what} cannot travel to other processes: {reason}; create it where it is used, such as within the "
                "input_fn or in a hook's begin",
            )
        ) from error


def unpickled(data: bytes) -> Any:
    """Return the value written by `pickled`, without importing the program. Thread-safe.

    Raises UsageError if a library is missing here.
    """
    with _reading, collector_at_rest():  # concurrent calls share only complete modules
        try:
            return pickle.loads(data)
        except ImportError as error:
            raise UsageError(
                (
                    f"the program needs {error.name or 'a module'!r}, which cannot be imported here ({error}); install "
                    "it where the Dask workers run: libraries and extension modules do not travel with a job",
                )
            ) from error


@final
class Shipped(Generic[T]):
    """A value that travels as bytes, and is opened once in each object: not by the scheduler."""

    def __init__(self, value: T, what: str) -> None:
        self._pickled = pickled(value, what)

    def __getstate__(self) -> dict[str, bytes]:
        """Return the pickled value."""
        return {"_pickled": self._pickled}

    @functools.cached_property
    def opened(self) -> T:
        """The value, in this process; UsageError if a library is missing here."""
        value: T = unpickled(self._pickled)
        return value


def _written(value: object, *, tries_members: bool = False) -> bytes:
    """Write `value`; `tries_members` writes only the members of modules that can travel, and tests functions."""
    buffer = io.BytesIO()
    with _writing, ByValue() as by_value:
        _Pickler(buffer, by_value, tries_members=tries_members).dump(value)
    return buffer.getvalue()


def _why_not(value: object) -> str | None:
    try:
        _written(value)
    except Exception as error:  # see `pickled`
        return str(error)
    return None


def _can_travel(value: object) -> bool:
    return _why_not(value) is None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Makes all functions of a module share it, also with its importers; cloudpickle makes them share copies."""

    def __init__(self, file: io.BytesIO, by_value: ByValue, *, tries_members: bool) -> None:
        super().__init__(file)
        self._by_value = by_value
        self._tries_members = tries_members
        self._modules = TravellingModules.of_this_process()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType):
            return self._module(obj)
        if isinstance(obj, functools._lru_cache_wrapper) and _is_of_program(obj):
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        if type(obj) in LOCKS:
            return LOCKS[type(obj)], ()
        if isinstance(obj, FunctionType):
            return self._function(obj)
        if isinstance(obj, CodeType):
            return _code, (*self.dispatch_table[CodeType](obj), obj.co_filename)
        if isinstance(obj, type):
            return self._class(obj)
        if isinstance(obj, TYPING) and _is_of_program(obj):
            return typing_reduced(obj)
        if isinstance(obj, Enum) and _is_of_program(type(obj)):
            return member_reduced(obj)
        if type(obj) not in self.dispatch_table:
            if is_own(sys.modules.get(type(obj).__module__)):
                return self._instance(obj)
            if (held := sentinel(obj)) is not None:
                return _held, held
        return super().reducer_override(obj)

    def _instance(self, obj: Any) -> Any:
        reduced = obj.__reduce_ex__(self.proto)
        if isinstance(reduced, str):  # the reader's module may have another value of that name, or none
            what = f"the __reduce__ of {type(obj).__qualname__} returns the name of a variable, {reduced!r}"
            raise pickle.PicklingError(
                f"{what}, which other processes may not have; return the class and its arguments from it"
            )
        return reduced

    def _module(self, module: ModuleType) -> Any:
        name = module.__name__
        if sys.modules.get(name) is not module:
            return NotImplemented
        if not is_own(module):
            return importlib.import_module, (name,)
        values, missing = {}, {}
        for key, value in vars(module).items():
            if key not in OF_PYTHON:
                if (fault := self._fault(value)) is None:
                    values[key] = value
                else:
                    missing[key] = fault
        return self._modules.module, (name, _facts(module)), (self._modules, values, missing), None, None, _fill_module

    def _fault(self, value: Any) -> str | None:
        """Return why a member of a module cannot travel, if its type alone shows it."""
        if self._tries_members and not isinstance(value, ModuleType):
            return _why_not(value)
        kind = type(value)
        if isinstance(value, FunctionType | ModuleType | type) or kind in LOCKS or kind in self.dispatch_table:
            return None
        try:
            value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # see `pickled`
            return str(error)
        return None

    def _function(self, function: FunctionType) -> Any:
        self._by_value.add(sys.modules.get(function.__module__))  # a library may have wrapped the function
        names = function.__globals__
        module = sys.modules.get(names.get("__name__", ""))
        if module is None or vars(module) is not names or not is_own(module):
            return super().reducer_override(function)
        self._by_value.add(module)
        self.globals_ref.setdefault(id(names), _Globals(self._modules, module))
        _, arguments, state, *_, fill = super().reducer_override(function)
        values = state[1].pop("__globals__") | {name: names[name] for name in global_names(function)}
        state[1]["__globals__"] = {}
        imported = [found for name in imported_names(function) if (found := own_module(name)) is not None]
        return _make_function, arguments, (self._modules, values, imported, fill, state), None, None, _fill_function

    def _class(self, kind: type) -> Any:
        module = sys.modules.get(kind.__module__)
        if module is not None and getattr(module, "__file__", None) is not None and not is_own(module):
            return NotImplemented if _is_found(kind, module) else super().reducer_override(kind)
        self._by_value.add(module)
        reduced = super().reducer_override(kind)
        if not isinstance(reduced, tuple) or len(reduced) < 6:
            return reduced
        make, arguments, state, *_, fill = reduced
        facts = _facts(module) if module is not None and is_own(module) else {}
        if issubclass(kind, Enum):
            make, arguments, state, fill = enum_reduced(reduced, kind)
        elif _is_of_program(type(kind)):
            of_library = next(one for one in type(kind).__mro__ if not _is_of_program(one))
            make, arguments = _make_plain, (make, arguments, of_library)
        state[0]["__qualname__"] = kind.__qualname__  # cloudpickle drops it
        if lookers := _lookers(kind.__mro__[1:]):
            make, arguments = _make_unseen, (make, arguments, lookers)
        return make, arguments, (self._modules, facts, fill, state), None, None, _fill_class


class _Globals(dict[str, Any]):
    """Placeholder for the globals of a module while its functions are pickled."""

    def __init__(self, modules: TravellingModules, module: ModuleType) -> None:
        super().__init__(_facts(module))
        self._call = (modules.globals, (module.__name__, _facts(module)))

    def __reduce__(self) -> Any:
        return self._call


def _facts(module: ModuleType) -> dict[str, Any]:
    facts = {key: vars(module)[key] for key in FACTS if vars(module).get(key) is not None}
    return {**facts, **({"__path__": list(facts["__path__"])} if "__path__" in facts else {})}


def _lookers(classes: Iterable[type]) -> list[type]:
    """Return the classes that inspect each new subclass."""
    return [base for base in classes if "__init_subclass__" in vars(base) and base.__module__ not in OF_TYPES]


def _is_found(kind: type, module: ModuleType) -> bool:
    found: Any = module
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind


def _is_of_program(value: Any) -> bool:
    return is_own(sys.modules.get(value.__module__))


def _cached(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _make_unseen(make: Callable[..., type], arguments: tuple[Any, ...], lookers: Iterable[type]) -> type:
    """Make a class that is filled later; its bases, which would inspect it, have seen it in the original process."""
    own = {
        base: hook for base in lookers if (hook := vars(base).get("__init_subclass__"))
    }  # without one, the base is not filled yet
    for base in own:
        base.__init_subclass__ = classmethod(lambda cls, **options: None)  # type: ignore[method-assign, assignment]
    try:
        return make(*arguments)
    finally:
        for base, hook in own.items():
            base.__init_subclass__ = hook  # type: ignore[method-assign]


def _make_plain(make: Callable[..., type], arguments: tuple[Any, ...], of_library: type[type]) -> type:
    """Make a class that is filled later; its metaclass, which would inspect it, has seen it in the original process."""
    kind, *others = arguments

    def plain(name: str, bases: tuple[type, ...], names: dict[str, Any]) -> type:
        made: type = of_library.__new__(kind, name, bases, names)
        of_library.__init__(made, name, bases, names)
        return made

    return make(plain, *others)


def _held(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _code(make: Callable[..., CodeType], arguments: tuple[Any, ...], filename: str) -> CodeType:
    return make(*arguments).replace(co_filename=filename)  # cloudpickle 3.1.3 drops it; exports need it


def _make_function(code: Any, names: dict[str, Any], name: Any, defaults: Any, closure: Any) -> FunctionType:
    return FunctionType(code, names, name, defaults, closure)


def _fill_function(function: FunctionType, state: tuple[Any, ...]) -> None:
    modules, values, _, fill, rest = state
    own = function.__globals__["__builtins__"]
    fill(function, rest)
    function.__globals__["__builtins__"] = own
    modules.add(function.__globals__, values)


def _fill_module(module: ModuleType, state: tuple[TravellingModules, Mapping[str, Any], Mapping[str, str]]) -> None:
    modules, values, missing = state
    modules.add_whole(module, values, missing)


def _fill_class(kind: type, state: tuple[TravellingModules, Mapping[str, Any], Callable[..., Any], Any]) -> None:
    modules, facts, fill, rest = state
    if modules.is_new(kind, facts):
        fill(kind, rest)
