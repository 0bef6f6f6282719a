"""Stands in for the modules of a program in other processes."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import secrets
import sys
import weakref
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any, Self

_PROCESS = secrets.token_hex(8)


class TravellingModules:
    """The modules of one pickle, by name, with the members that have travelled.

    In the receiving process they are not in ``sys.modules``, which may hold versions of other jobs. All readers of one
    pickle in a process share them, as they would share imports. In the process that has written the pickle the modules
    are those of the program itself.
    """

    def __init__(self, key: str, origin: tuple[str, int]) -> None:
        self._key, self._origin = key, origin
        self._modules: dict[str, ModuleType] = {}
        self._whole: set[str] = set()
        self._classes: dict[type, ModuleType] = {}
        self._builtins = {**vars(builtins), "__import__": self._import, "__build_class__": self._build_class}

    @classmethod
    def of_this_process(cls) -> Self:
        """Return the modules of a new pickle."""
        return cls(secrets.token_hex(8), _here())

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a reduction that finds the modules of the same pickle."""
        return _same, (self._key, self._origin)

    @property
    def are_at_home(self) -> bool:
        """Whether this process has written the pickle."""
        return self._origin == _here()

    def module(self, name: str, facts: Mapping[str, Any]) -> ModuleType:
        """Return the module `name`; `facts` are the attributes that Python sets."""
        if self.are_at_home:
            return sys.modules[name]
        if name not in self._modules:
            made = self._modules[name] = ModuleType(name)
            vars(made).update(facts, __builtins__=self._builtins)
        return self._modules[name]

    def globals(self, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the globals of the functions of the module `name`."""
        return vars(self.module(name, facts))

    def add(self, names: dict[str, Any], values: Mapping[str, Any]) -> None:
        """Add `values` to globals, except those that arrived before: they may have changed since then."""
        if not self.are_at_home:
            for name, value in values.items():
                names.setdefault(name, value)
            names["__builtins__"] = self._builtins

    def add_whole(self, module: ModuleType, values: Mapping[str, Any], missing: Mapping[str, str]) -> None:
        """Add all travelling members of a module; `missing` has the reason for each other one."""
        self._whole.add(module.__name__)
        self.add(vars(module), values)
        if missing and not self.are_at_home:
            vars(module)["__getattr__"] = lambda name: _refuse(module.__name__, name, missing)

    def is_new(self, kind: type, facts: Mapping[str, Any]) -> bool:
        """Return whether a class is to be filled, and mark it as filled; `facts` are those of its module."""
        if self.are_at_home or kind in self._classes:
            return False
        self._classes[kind] = self.module(kind.__module__, facts)
        return True

    def module_of(self, kind: type) -> ModuleType | None:
        """Return the module of a class that has travelled with this pickle."""
        return self._classes.get(kind)

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> Any:
        """Import as ``import`` does, but take modules that have travelled from here."""
        package = (globals or {}).get("__package__") or ""
        absolute = importlib.util.resolve_name("." * level + name, package) if level and package else name
        wanted = absolute if fromlist else absolute.partition(".")[0]
        if wanted not in self._whole:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        self._bind(absolute)
        for one in fromlist or ():
            if f"{absolute}.{one}" in self._whole or self._is_namespace(absolute):
                self._bind(f"{absolute}.{one}", must_exist=False)
        return self._modules[wanted]

    def _bind(self, name: str, *, must_exist: bool = True) -> None:
        """Bind each travelled package of the dotted `name` to the next module, as an import does."""
        parts = name.split(".")
        for length in range(1, len(parts)):
            parent, whole = ".".join(parts[:length]), ".".join(parts[: length + 1])
            if parent not in self._whole or parts[length] in vars(self._modules[parent]):
                continue
            try:
                found = self._modules[whole] if whole in self._whole else importlib.import_module(whole)
            except ModuleNotFoundError as error:
                if must_exist or error.name != whole:
                    raise
            else:
                setattr(self._modules[parent], parts[length], found)

    def _build_class(self, body: FunctionType, name: str, /, *bases: Any, **options: Any) -> Any:
        """Make a class as a class statement does; annotations as text find their names, as in the original process.

        Dataclasses look for it in ``sys.modules``, under the name that the class has for its module.
        """
        made = builtins.__build_class__(body, name, *bases, **options)
        texts = vars(made).get("__annotations__", {}).values() if isinstance(made, type) else ()
        module = self._modules.get(made.__module__) if any(isinstance(text, str) for text in texts) else None
        if module is not None:
            made.__module__ = place = f"{module.__name__}@{self._key}"
            if place not in sys.modules:
                sys.modules[place] = _Names(module)  # type: ignore[assignment]
                weakref.finalize(module, sys.modules.pop, place, None)
        return made

    def _is_namespace(self, name: str) -> bool:
        """Return whether installed libraries may have modules in a travelled package."""
        return {"__path__", "__file__"} & vars(self._modules[name]).keys() == {"__path__"}


class _Names:
    """Stands in for a travelled module without keeping it alive."""

    __slots__ = ("_module",)

    def __init__(self, module: ModuleType) -> None:
        self._module = weakref.ref(module)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        module = self._module()
        return {} if module is None else vars(module)


_opened: weakref.WeakValueDictionary[str, TravellingModules] = weakref.WeakValueDictionary()


def module_of(kind: type) -> ModuleType | None:
    """Return the module of a class, travelled or imported; None if it is unknown here."""
    travelled = (modules.module_of(kind) for modules in list(_opened.values()))
    return next((module for module in travelled if module is not None), sys.modules.get(kind.__module__))


def _same(key: str, origin: tuple[str, int]) -> TravellingModules:
    modules = _opened.get(key)
    if modules is None:
        modules = _opened[key] = TravellingModules(key, origin)
    return modules


def _here() -> tuple[str, int]:
    return _PROCESS, os.getpid()  # a fork has its own modules


def _refuse(module: str, name: str, missing: Mapping[str, str]) -> Any:
    why = f"it stayed in the caller's process: {missing[name]}" if name in missing else "there is none"
    raise AttributeError(f"module {module!r} has no {name!r} here; {why}", name=name)
