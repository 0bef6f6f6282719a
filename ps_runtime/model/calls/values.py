"""Values of a model, and features that record which of them a model_fn reads."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import PsflowError, did_you_mean
from psflow.ps_runtime.redaction import shown_file
from psflow.ps_runtime.specs.schema_enforcement import listed_names
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec

if TYPE_CHECKING:
    from psflow.ps_runtime.tables.table import Table


class RowSource(Protocol):
    """Provides rows of tables during a call of model_fn."""

    def rows(self, spec: TableSpec, ids: NDArray[np.int64]) -> Any:
        """Return the rows of ``(num_ids,)`` unique `ids`, possibly none, as ``(num_ids, dim)``, for reading only."""


@dataclass(frozen=True, slots=True)
class ModelValues:
    """A model at one global_step; the `RowSource` for its tables."""

    variables: Mapping[str, NDArray[Any]]
    tables: Mapping[str, Table] = field(default_factory=dict)

    @classmethod
    def initial(cls, model: ModelSpec, variables: Mapping[str, NDArray[Any]]) -> ModelValues:
        """Return the values of a model before the first push."""
        from psflow.ps_runtime.tables.table import Table  # imported only for models with tables

        return cls(variables, {table.name: Table(table, None) for table in model.tables})

    def rows(self, spec: TableSpec, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows of ``(num_ids,)`` unique `ids`, of shape ``(num_ids, dim)``."""
        out = np.empty((len(ids), spec.dim), spec.dtype)
        self.tables[spec.name].pull(ids, out)
        return out


T = TypeVar("T")
NONE: Mapping[str, Any] = MappingProxyType({})
WALKS = (
    "__iter__", "__len__", "__reversed__", "keys", "values", "items", "popitem", "copy", "__eq__", "__ne__", "__or__",
    "__ror__",
)  # fmt: skip
"""The methods of a dict that read all entries."""


class WatchedFeatures(dict[str, Any]):
    """Features by name that record the requested ones, the missing ones, and whether all were read.

    Testing with ``in`` reads nothing.
    """

    __hash__ = None  # as in dict

    def __init__(self, features: Mapping[str, Any], beside: Mapping[str, Any] = NONE) -> None:
        super().__init__(features)
        self._beside = dict(beside)
        self._given = frozenset(features) | frozenset(beside)
        self._asked: set[str] = set()
        self.is_walked = False
        """Whether all features were read."""
        self.missing: dict[str, str] = {}
        """The line that requested a missing feature, as ``file:line``."""

    @property
    def read(self) -> frozenset[str]:
        """The existing features that were requested by name."""
        return self._given & self._asked

    def fault(self, name: str, model_fn: str, mode: str, where: str, names: Sequence[str]) -> str:
        """Return the error message for a missing feature of the input `where`, which has the features `names`."""
        near = did_you_mean(name, names) or listed_names("feature", names)
        return f"{where} has no feature {name!r}, which {model_fn} reads in {mode} mode at {self.missing[name]}{near}"

    def __getitem__(self, name: str) -> Any:
        self._asked.add(name)
        if super().__contains__(name):
            return super().__getitem__(name)
        if name not in self._beside:
            self.missing[name] = _reader()
            raise KeyError(name)
        return self._beside[name]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._beside

    def __delitem__(self, name: str) -> None:
        self[name]
        super().pop(name, None)
        self._beside.pop(name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a feature, or `default` if it is missing."""
        return self[name] if name in self else default  # noqa: SIM401  (this is get)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return a feature, which is set to `default` if it was missing."""
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        """Return a feature and remove it; or the default, if it was missing."""
        if default and name not in self:
            return default[0]
        feature = self[name]
        del self[name]
        return feature

    def clear(self) -> None:
        """Remove all features without reading them."""
        super().clear()
        self._beside.clear()


def _walking(name: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(dict, name)

    @functools.wraps(method)
    def walk(self: WatchedFeatures, *arguments: Any) -> Any:
        self.is_walked = True
        return method(self, *arguments)

    return walk


for _name in WALKS:
    setattr(WatchedFeatures, _name, _walking(_name))


def _reader() -> str:
    """Return the line outside of this file that reads a feature."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"{shown_file(frame.f_code.co_filename)}:{frame.f_lineno}"


def observed(features: Any, call: Callable[[Any], T]) -> tuple[T, frozenset[str] | None]:
    """Return the result of `call(features)`, and the names of the features that it read; None: all of them.

    A library that accepts only plain dicts, as JAX does, is called again with one, and reads all features.
    """
    if type(features) is not dict:
        return call(features), None
    watched = WatchedFeatures(features)
    try:
        answer = call(watched)
    except TypeError as error:
        if isinstance(error, PsflowError):
            raise
    else:
        return answer, None if watched.is_walked else watched.read
    return call(features), None
