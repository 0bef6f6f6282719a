"""The scope of one call of a model_fn: provides its variables and tables, and collects its summaries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from psflow.ps_runtime.errors import ModelFnError, did_you_mean
from psflow.ps_runtime.initializers import Initializer, constant, glorot_uniform, table_seed, variable_rng
from psflow.ps_runtime.model.calls.values import RowSource
from psflow.ps_runtime.model.lookups import Lookups
from psflow.ps_runtime.model.summary_files import FileSummary
from psflow.ps_runtime.numeric import first_non_finite, plain, read_only
from psflow.ps_runtime.partitioners import Partitioner, num_slices
from psflow.ps_runtime.specs.input import ColumnSpec
from psflow.ps_runtime.specs.variables import TableSpec
from psflow.ps_runtime.tables.initial_rows import initial_rows

GLOBAL_STEP = "global_step"
"""Name of the count of updates among the variables of a checkpoint."""
KeyPath = tuple[str, ...]
"""Position of an array in nested features; empty for the features themselves."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A variable as requested from `get_variable`."""

    shape: tuple[int, ...]
    dtype: str
    trainable: bool
    num_slices: int | None = None

    def __str__(self) -> str:
        slices = "" if self.num_slices is None else f", in {self.num_slices} slices"
        return f"{self.dtype}{list(self.shape)}{'' if self.trainable else ', not trainable'}{slices}"


@dataclass
class ModelScope(ABC):
    """One call of a model_fn."""

    global_step: int
    seed: int | None = field(default=None, kw_only=True)
    """The seed of the job, in a training call."""
    lookups: Lookups = field(default_factory=Lookups, kw_only=True)
    summaries: dict[str, Any] = field(default_factory=dict, init=False)
    file_summaries: dict[str, FileSummary] = field(default_factory=dict, init=False)
    columns: dict[str, Callable[[], tuple[ColumnSpec, ...]]] = field(default_factory=dict, init=False)
    """The feature columns of each layer, by its name."""
    _buffered: set[str] = field(default_factory=set, init=False, repr=False)
    _tokens: list[Token[ModelScope]] = field(default_factory=list, init=False, repr=False)

    def __enter__(self) -> Self:
        """Become the current scope of `get_variable` and similar functions, until the end of the block."""
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._tokens.pop())

    @abstractmethod
    def variable(self, name: str, declared: Declared, initializer: Initializer) -> Any:
        """Return the value of a variable."""

    def gradient_buffer(self, name: str) -> NDArray[Any]:
        """Return memory for computing the gradient of a variable; only once per call."""
        if name in self._buffered:
            raise ModelFnError((f"gradient_buffer({name!r}) was called twice in one call of model_fn; keep the first",))
        self._buffered.add(name)
        return self._buffer(name)

    @abstractmethod
    def _buffer(self, name: str) -> NDArray[Any]:
        """Return memory for the gradient of a variable."""

    @abstractmethod
    def table(self, asked: TableSpec, ids: Any) -> TableSpec:
        """Return the requested table with its seed, to look `ids` up in it."""

    @abstractmethod
    def rows(self, spec: TableSpec, ids: NDArray[np.int64]) -> Any:
        """Return the rows of ``(num_ids,)`` unique `ids` of a table, ``(num_ids, dim)``."""


@dataclass
class BuildScope(ModelScope):
    """The first call: creates variables and tables, seeded by their names, and records them in order."""

    seed: int
    features: Any = None
    values: dict[str, NDArray[Any]] = field(default_factory=dict, init=False)
    declared: dict[str, Declared] = field(default_factory=dict, init=False)
    tables: dict[str, TableSpec] = field(default_factory=dict, init=False)
    _looked_up: dict[str, list[KeyPath | None]] = field(default_factory=dict, init=False)
    """For each table, the positions in the features of the arrays that were looked up in it; None: not a feature."""

    def variable(self, name: str, declared: Declared, initializer: Initializer) -> Any:
        """Create the variable, or return it if this call has created it before."""
        if name in self.tables:
            raise _is_table(name)
        if name in self.declared:
            known = self.declared[name]
            if declared not in (known, replace(known, num_slices=None)):  # a repeated request may leave its slices out
                raise _differs(name, declared, known)
            return self.values[name]
        value = np.asarray(initializer(declared.shape, np.dtype(declared.dtype), variable_rng(self.seed, name)))
        if (value.shape, value.dtype.name) != (declared.shape, declared.dtype):
            raise ModelFnError(
                (
                    f"the initializer of variable {name!r} returned {value.dtype.name}{list(value.shape)}, "
                    f"expected {declared.dtype}{list(declared.shape)}",
                )
            )
        if value.dtype.kind == "f" and (found := first_non_finite(np.ascontiguousarray(value))) is not None:
            raise ModelFnError((f"the initializer of variable {name!r} returned {found[1]}, expected finite numbers",))
        self.declared[name] = declared
        self.values[name] = read_only(value)
        return self.values[name]

    def _buffer(self, name: str) -> NDArray[Any]:
        """Return new memory."""
        return _new_buffer(name, self.declared)

    def table(self, asked: TableSpec, ids: Any) -> TableSpec:
        """Create the table, or return it if this call has created it before."""
        if asked.name in self.declared:
            raise _is_variable(asked.name)
        if asked.name in self.tables:
            _check_same(self.tables[asked.name], asked)
        else:
            self.tables[asked.name] = replace(asked, seed=table_seed(self.seed, asked.name))
        path = next((path for path, array in _arrays(self.features) if array is ids), None)
        self._looked_up.setdefault(asked.name, []).append(path)
        return self.tables[asked.name]

    @property
    def table_features(self) -> dict[str, tuple[KeyPath, ...]]:
        """Positions of the ids in the features, for each table whose ids all are unchanged features."""
        return {
            name: tuple(dict.fromkeys(path for path in paths if path is not None))
            for name, paths in self._looked_up.items()
            if None not in paths
        }

    def rows(self, spec: TableSpec, ids: NDArray[np.int64]) -> Any:
        """Return the initial rows."""
        return initial_rows(spec, ids)


@dataclass
class CallScope(ModelScope):
    """A later call: variables are views of pulled values, or values traced by autograd; rows come from a source."""

    values: Mapping[str, Any]
    declared: Mapping[str, Declared]
    tables: Mapping[str, TableSpec] = field(default_factory=dict)
    row_source: RowSource | None = None
    """Required if there are tables."""
    buffers: Callable[[], Mapping[str, NDArray[Any]]] | None = None
    """Provides memory for the gradients of some variables, the same during a call."""
    provided: Mapping[str, NDArray[Any]] = field(default_factory=dict, init=False, repr=False)
    """What `buffers` has provided, once it was asked."""

    def variable(self, name: str, declared: Declared, initializer: Initializer) -> Any:
        """Return the given value; refuse a variable that the first call did not request."""
        known = self.declared.get(name)
        if known is None:
            if name in self.tables:
                raise _is_table(name)
            raise ModelFnError(
                (
                    f"model_fn requested the new variable {name!r}; the first call in a mode fixes the variables"
                    f"{did_you_mean(name, self.declared)}",
                )
            )
        if known is not declared and (known.shape != declared.shape or known.dtype != declared.dtype):
            raise _differs(name, declared, known)
        return self.values[name]

    def _buffer(self, name: str) -> NDArray[Any]:
        """Return the given memory, or new memory."""
        if not self.provided and self.buffers is not None:
            self.provided = self.buffers()
        buffer = self.provided.get(name)
        return _new_buffer(name, self.declared) if buffer is None else buffer

    def table(self, asked: TableSpec, ids: Any) -> TableSpec:
        """Return the table of the first call; refuse another one."""
        known = self.tables.get(asked.name)
        if known is None:
            if asked.name in self.declared:
                raise _is_variable(asked.name)
            raise ModelFnError(
                (
                    f"model_fn looked ids up in the new table {asked.name!r}; the first call in a mode fixes the "
                    f"tables{did_you_mean(asked.name, self.tables)}",
                )
            )
        _check_same(known, asked)
        return known

    def rows(self, spec: TableSpec, ids: NDArray[np.int64]) -> Any:
        """Return rows of the source."""
        assert self.row_source is not None
        return self.row_source.rows(spec, ids)


def _new_buffer(name: str, declared: Mapping[str, Declared]) -> NDArray[Any]:
    known = declared.get(name)
    if known is None or not known.trainable:
        trainable = [other for other, d in declared.items() if d.trainable]
        fault = f"gradient_buffer: {name!r} is not a trainable variable of this model{did_you_mean(name, trainable)}"
        raise ModelFnError((fault,))
    return np.empty(known.shape, known.dtype)


def _differs(name: str, asked: Declared, known: Declared) -> ModelFnError:
    return ModelFnError((f"model_fn requested variable {name!r} as {asked}, but it is {known}",))


def _check_same(known: TableSpec, asked: TableSpec) -> None:
    if differences := known.differences(asked):
        raise ModelFnError((f"model_fn requested table {asked.name!r} with {'; '.join(differences)}",))


def _is_table(name: str) -> ModelFnError:
    return ModelFnError((f"{name!r} is a table, so no variable can have this name; choose another one",))


def _is_variable(name: str) -> ModelFnError:
    return ModelFnError((f"{name!r} is a variable, so no table can have this name; choose another one",))


def _arrays(features: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(features, Mapping):
        for key, value in features.items():
            yield from _arrays(value, (*path, key))
    else:
        yield path, features


_current: ContextVar[ModelScope] = ContextVar("psflow_model_scope")


def current_scope(caller: str) -> ModelScope:
    """Return the scope of the current call; a ModelFnError that names `caller` outside of a call."""
    try:
        return _current.get()
    except LookupError:
        raise ModelFnError((f"{caller} works only inside a model_fn that psflow calls",)) from None


def is_in_model_fn() -> bool:
    """Return whether psflow calls a model_fn in this thread."""
    return _current.get(None) is not None


def read_columns(layer: str, specs: Callable[[], tuple[ColumnSpec, ...]]) -> None:
    """Record the feature columns of a layer in the current call, if any; ModelFnError for a name given twice."""
    columns = {} if (scope := _current.get(None)) is None else scope.columns
    if layer in columns:
        raise ModelFnError((f"feature columns: two layers {layer!r} in one call of model_fn; give one another name=",))
    columns[layer] = specs


def get_variable(
    name: str,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    initializer: Initializer | ArrayLike | None = None,
    *,
    trainable: bool | None = None,
    partitioner: Partitioner | None = None,
) -> Any:
    """Return the value of a variable of the model; the first call in a mode creates it.

    Parameters
    ----------
    name : str
        Unique in the model; also seeds the initial value.
    shape : int or sequence of int, optional
        An int is the length of a vector. Default: ``()``, a scalar; or the shape of `initializer`, if that is a value.
    dtype : dtype, optional
        A float dtype for trainable variables. Default: float32; or the dtype of `initializer`, if that is an array.
    initializer : callable ``(shape, dtype, rng) -> array``, number or array, optional
        Called once in the lifetime of a job, for the initial value; `rng` is seeded by the job's seed and `name`. Or
        the initial value itself, which sets the shape. Default: `glorot_uniform`.
    trainable : bool, optional
        Whether an optimizer may change it; default: True.
    partitioner : callable ``(shape, dtype) -> slices of each axis``, optional
        Returns the number of slices of rows in which several ps share the variable, such as `fixed_size_partitioner`.
        Its value and its gradient stay whole. Default: large variables are split by their bytes.

    Returns
    -------
    array of `shape`
        A read-only view: only the optimizer changes variables. Valid during this call.

    Raises
    ------
    ModelFnError
        Outside a model_fn; for a new name, or another shape or dtype, after the first call; for an invalid name, shape
        or dtype; for a shape given with a value; for slices along another axis than 0.
    """
    if initializer is None:
        initializer = glorot_uniform
    elif not callable(initializer):
        shape, dtype, initializer = _first_value(name, shape, dtype, initializer)
    asked: tuple[Any, ...] = (name, shape, dtype, trainable)
    try:
        declared = _declared(*asked)
    except TypeError:  # not hashable
        declared = _declared.__wrapped__(*asked)
    if partitioner is not None:
        slices = num_slices(name, declared.shape, np.dtype(declared.dtype), partitioner)
        declared = replace(declared, num_slices=slices)
    return current_scope("get_variable").variable(name, declared, initializer)


def _first_value(
    name: str, shape: Any, dtype: DTypeLike | None, value: ArrayLike
) -> tuple[tuple[int, ...], np.dtype[Any], Initializer]:
    """Return shape and dtype of a variable with the initial value `value`, and an initializer for it."""
    if shape is not None:
        fault = (
            f"the initializer of variable {name!r} is a value, which sets the shape: leave out shape "
            f"{shape!r}, or give initializers.constant(value), which fills it"
        )
        raise ModelFnError((fault,))
    given = np.asarray(value)
    if dtype is None and isinstance(value, float):
        dtype = np.float32
    return given.shape, np.dtype(given.dtype if dtype is None else dtype), constant(given)


def _as_shape(shape: Any) -> Any:
    """Return the tuple for a valid shape; anything else unchanged, to be refused later."""
    if shape is None:
        return ()
    if isinstance(shape, int | np.integer):
        return (shape,)
    return tuple(shape) if isinstance(shape, list) else shape


@lru_cache(maxsize=4096, typed=True)  # every call of a model_fn requests the same variables
def _declared(name: str, given_shape: Any, given_dtype: Any, given_trainable: bool | None) -> Declared:
    shape, trainable = _as_shape(given_shape), given_trainable is None or given_trainable
    dtype = np.dtype(np.float32 if given_dtype is None else given_dtype)
    faults = []
    if not isinstance(name, str) or not name:
        faults.append(f"a variable needs a name, got {name!r}")
    elif name == GLOBAL_STEP:
        faults.append(f"{name!r} is reserved for the step count of psflow: call get_or_create_global_step()")
    if not isinstance(shape, tuple) or not all(isinstance(n, int | np.integer) and n >= 0 for n in shape):
        faults.append(f"the shape of variable {name!r} is {shape!r}, expected a tuple of integers >= 0")
    kind = dtype.kind
    if kind not in ("f" if trainable else "fiub"):
        wanted = "a float dtype, or trainable=False" if trainable else "a float, integer or bool dtype"
        faults.append(f"the dtype of variable {name!r} is {dtype}, expected {wanted}")
    elif dtype.itemsize > 8:
        faults.append(f"the dtype of variable {name!r} is {dtype}, which no checkpoint can hold; use 64 bits or less")
    if faults:
        raise ModelFnError(tuple(faults))
    return Declared(tuple(int(n) for n in shape), dtype.name, trainable)


def get_or_create_global_step() -> int:
    """Return the global_step of the variables in this call, as far as this role knows."""
    return current_scope("get_or_create_global_step").global_step


def scalar_summary(name: str, value: Any) -> None:
    """Record a scalar of this batch under `name`; the chief writes it every `save_summary_steps`.

    Raises
    ------
    ModelFnError
        Outside a model_fn; if `value` is not a single number.
    """
    if type(value) is not float and (shape := np.shape(plain(value))):
        raise ModelFnError((f"summary.scalar({name!r}) takes a single number, got shape {list(shape)}; take its mean",))
    current_scope("summary.scalar").summaries[name] = value
