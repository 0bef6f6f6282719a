"""Collects the code of an export: files of a model_fn, their imports, and required libraries."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import MethodType
from typing import Any

from psflow import ps_runtime
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.optimizers import Optimizer, Schedule
from psflow.ps_runtime.shipping.own_modules import is_installed
from psflow.ps_runtime.shipping.travelling_modules import module_of
from psflow.tasks.exports.script import reduced

ENGINE = "psflow"
ENGINE_ROOT = Path(ps_runtime.__file__).parents[2]
ENTRY_POINTS = (
    "psflow.ps_runtime.errors",
    "psflow.ps_runtime.model.calls.caller",
    "psflow.ps_runtime.model.export.outputs",
    "psflow.ps_runtime.model.export.serving_input",
    "psflow.ps_runtime.model.spec",
    "psflow.ps_runtime.model.calls.values",
    "psflow.ps_runtime.specs.schema",
    "psflow.ps_runtime.specs.variables",
    "psflow.ps_runtime.tables.table",
)
"""Imports of the script of an export."""

MAIN = ("__main__", "__mp_main__")
"""Names of the module that runs as a program."""

ROOMS = ("flows", "tasks", "ps_runtime")
"""Packages of psflow that import all names eagerly."""

_distributions: dict[str, str] = {}
"""Distributions of libraries, filled by `_find_distributions`."""


@dataclass(frozen=True, slots=True)
class ModelFnSource:
    """Location of a model_fn, or of another definition: ``module:qualname`` in the file `path` below `root`.

    `is_script` says whether the file ran as a program, and may have trained as such.
    """

    module: str
    qualname: str
    path: Path
    root: Path
    is_script: bool = False


def source_of(model_fn: Callable[..., Any], what: str = "model_fn") -> ModelFnSource:
    """Find the file of a model_fn, or of another function or a class (named `what` in errors).

    Raises
    ------
    ModelFnError
        If there is none (as in an interpreter or a notebook), if it is not at the top level of its module or of a class
        there, or if it is a bound method other than a model_fn.
    """
    function = inspect.unwrap(getattr(model_fn, "__func__", model_fn))
    name = getattr(model_fn, "__qualname__", repr(model_fn))
    if inspect.isclass(model_fn):
        path = Path(getattr(module_of(model_fn), "__file__", None) or "its module")
    elif inspect.isfunction(function):
        path = Path(function.__code__.co_filename)
    else:
        kind = type(model_fn).__name__
        raise ModelFnError((f"{what} {name} is a {kind}: expected a function or a method, for the export",))
    module = model_fn.__module__
    if inspect.ismethod(model_fn):
        owner = _owner(model_fn, what)
        name, module = f"{owner.__qualname__}.{model_fn.__name__}", owner.__module__
        path = Path(getattr(module_of(owner), "__file__", None) or path)  # a method may be inherited
    if "<" in name:
        raise ModelFnError((f"{what} {name} cannot be exported: move it to the top level of its module",))
    if path.is_absolute() and path.suffix == ".py" and not path.is_file():
        raise ModelFnError(
            (
                f"{what} {name} comes from {path}, which does not exist on {socket.gethostname()}; an export copies "
                "it: have it at the same path there, or install it as a package; move code of a notebook to a module",
            )
        )
    if not path.is_file():
        raise ModelFnError(
            (
                f"{what} {name} has no file (it comes from {path}), so it cannot be exported: move it to a module, "
                "such as model.py, and import it from there",
            )
        )
    return _source(path.absolute(), module, name)


def _owner(method: MethodType, what: str) -> type:
    """Return the class of a method; an export holds the class without its instance."""
    owner = method.__self__
    if inspect.isclass(owner):
        return owner
    if what != "model_fn":
        raise ModelFnError(
            (
                f"{what} {method.__qualname__} is bound to a {type(owner).__qualname__}, which an export cannot hold; "
                "use a function, or functools.partial with numbers by name",
            )
        )
    return type(owner)


def source_of_rule(rule: Optimizer | Schedule) -> ModelFnSource:
    """Find the file of the class of an optimizer or a schedule.

    Raises ModelFnError if it has no file, or is not at its top level.
    """
    kind = type(rule)
    file = getattr(module_of(kind), "__file__", None)  # of the class: update may be inherited
    path = Path(file or "").absolute()
    if not path.is_file() or "." in kind.__qualname__:
        noun = "optimizer" if isinstance(rule, Optimizer) else "schedule"
        raise ModelFnError(
            (
                f"the {noun} {kind.__qualname__} cannot be exported: move it to the top level of a module, such as "
                f"my_{noun}.py, and import it from there",
            )
        )
    return _source(path, kind.__module__, kind.__qualname__)


def _source(path: Path, module: str, qualname: str) -> ModelFnSource:
    importable, root = _module_of(path, module)
    return ModelFnSource(importable, qualname, path, root, module in MAIN)


def _module_of(path: Path, name: str) -> tuple[str, Path]:
    """Return the importable name of a file, and its import root."""
    if name in MAIN:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        name = path.stem if spec is None or spec.origin != str(path) else spec.name
    parts = name.split(".")
    if path.name == "__init__.py":
        parts.append("__init__")
    below = Path(*parts).with_suffix(".py")
    if path.parts[-len(parts) :] == below.parts:
        return name, path.parents[len(parts) - 1]
    return path.stem, path.parent


@dataclass
class RequiredCode:
    """Files that a model_fn needs, by path below the import root, and the libraries that they import.

    Without the engine only the user's files are collected, which takes a hundredth of the time.

    The search follows imports of psflow's engine, and of the user's own code: files beside or below that of model_fn,
    or on Python's path outside the installed libraries. Blocks for type checkers or ``__main__`` are skipped. Of a
    script only the part that model_fn and the `others` use is taken, as `reduced` says.

    Raises ModelFnError if a file of the user imports all names of psflow, or as `reduced` does.
    """

    source: ModelFnSource
    others: tuple[ModelFnSource, ...] = ()
    modules: tuple[str, ...] = ()
    has_engine: bool = True
    files: dict[Path, Path] = field(default_factory=dict, init=False)
    scripts: dict[Path, bytes] = field(default_factory=dict, init=False)
    """The contents of files that differ from those on disk."""
    libraries: set[str] = field(default_factory=set, init=False)
    _followed: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        sources = (self.source, *self.others)
        for path in {one.path for one in sources if one.is_script}:
            self.scripts[path] = reduced(path, {one.qualname.split(".")[0] for one in sources if one.path == path})
        modules = (one.module for one in sources)
        for name in (*(ENTRY_POINTS if self.has_engine else ()), *modules, *self.modules):
            self._add(name)

    def requirements(self) -> list[str]:
        """Return the distributions of the libraries with versions, such as ``scipy==1.17.1``."""
        _find_distributions(self.libraries)
        names = {_distributions[library] for library in self.libraries if library in _distributions}
        return sorted(map(pinned, names))

    def _add(self, name: str) -> None:
        """Add a module, its parent packages, and their imports."""
        if name in self._followed:
            return
        self._followed.add(name)
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or (top == ENGINE and not self.has_engine):
            return
        root = self._root_of(top)
        if root is None:
            self.libraries.add(top)
            return
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            path = _file_of(root, parts[:length])
            if path is None or path.relative_to(root) in self.files:
                continue
            self.files[path.relative_to(root)] = path
            stub = path.with_suffix(".pyi")
            if top == ENGINE and stub.is_file():
                self.files[stub.relative_to(root)] = stub
            package = parts[:length] if path.name == "__init__.py" else parts[: length - 1]
            around = ".".join(package)
            is_ours = top == ENGINE
            own = self.scripts.get(path)
            found = _engine_imports(path, around, path.stat().st_mtime_ns) if is_ours else _imports(path, around, own)
            for imported in found:
                self._add(imported)

    def _root_of(self, top: str) -> Path | None:
        """Return the folder that holds the module or package `top`, or None if it belongs to an installed library."""
        if top == ENGINE:
            return ENGINE_ROOT
        own = self.source.root
        is_library = is_installed(own)
        if (own / top).is_dir() or (own / f"{top}.py").is_file():
            return None if is_library and top != self.source.module.partition(".")[0] else own
        spec = importlib.util.find_spec(top)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            return None
        origin = Path(spec.origin)
        if is_installed(origin):
            return None
        return origin.parents[1] if origin.name == "__init__.py" else origin.parent


def pinned(distribution: str) -> str:
    """Return the requirement of a distribution as installed, without the name of its build, such as ``+cpu``."""
    return f"{distribution}=={metadata.version(distribution).partition('+')[0]}"


def _file_of(root: Path, parts: list[str]) -> Path | None:
    package = root.joinpath(*parts, "__init__.py")
    module = root.joinpath(*parts).with_suffix(".py")
    return next((path for path in (package, module) if path.is_file()), None)


def _find_distributions(libraries: set[str]) -> None:
    """Record the distributions of new libraries, with a slow search of all installed ones."""
    if not libraries <= _distributions.keys():
        _distributions.update((library, names[0]) for library, names in metadata.packages_distributions().items())


@functools.cache
def _engine_imports(path: Path, package: str, changed_at_ns: int) -> frozenset[str]:
    """Return the top-level imports of a file of psflow; `changed_at_ns` detects an upgrade under a running worker."""
    return frozenset(_imports(path, package, into_functions=False))


def _imports(path: Path, package: str, text: bytes | None = None, *, into_functions: bool = True) -> set[str]:
    """Return the modules that a file may import at its top level, and in functions unless excluded."""
    tree = ast.parse(path.read_bytes() if text is None else text, str(path))
    found: set[str] = set()
    names: dict[str, str] = {}
    """Modules of psflow that are used by an attribute of a name, such as ``tf.estimator.ModeKeys``."""
    for node in _statements(tree, into_functions=into_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            names |= {a.asname or a.name: a.name for a in node.names if a.name == ENGINE}
            names |= {a.asname: a.name for a in node.names if a.asname and a.name.startswith(f"{ENGINE}.")}
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            if base == ENGINE and node.names[0].name == "*":
                raise ModelFnError((_star_fault(path, node.lineno, tree),))
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
            if base.partition(".")[0] == ENGINE:
                names |= {alias.asname or alias.name: f"{base}.{alias.name}" for alias in node.names}
    found |= {name for node in ast.walk(tree) if (name := _dotted(node, names)) is not None}
    return found | {_home_of(name) for name in found if name.startswith(f"{ENGINE}.")}


def _dotted(node: ast.AST, names: Mapping[str, str]) -> str | None:
    """Return the dotted name of an attribute of psflow, such as ``psflow.estimator.ModeKeys``; None for others."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    before = _dotted(node.value, names)
    return None if before is None else f"{before}.{node.attr}"


def _star_fault(path: Path, line: int, tree: ast.AST) -> str:
    """Describe the fault of a star import of psflow, and list the names that the file uses."""
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used = sorted(read & set(importlib.import_module(ENGINE).__all__))
    what = f"{path}, line {line}: from {ENGINE} import * would take all of training into the export"
    return f"{what}; import what the file uses" + (f": from {ENGINE} import {', '.join(used)}" if used else "")


def _statements(node: ast.AST, *, into_functions: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _is_guard(child.test):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not into_functions:
            continue
        yield child
        yield from _statements(child, into_functions=into_functions)


def _is_guard(test: ast.expr) -> bool:
    text = ast.unparse(test)
    return text.endswith("TYPE_CHECKING") or text.startswith("__name__ ==")


def _home_of(name: str) -> str:
    """Return the module of psflow that defines `name`, as psflow and its modules of names import them lazily."""
    if name.split(".")[1] in ROOMS:
        return name.rpartition(".")[0]
    value: Any = importlib.import_module(ENGINE)
    for part in name.split(".")[1:]:
        if not inspect.ismodule(value) or not hasattr(value, part):  # an attribute of a class or a function
            break
        value = getattr(value, part)
    home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
    return home if isinstance(home, str) and home.startswith(ENGINE) else ENGINE
