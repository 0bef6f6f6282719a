"""A data set in memory, and the order in which each epoch reads it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.row_lifetime import RowLifetime
from psflow.ps_runtime.data.arrays import (
    Array,
    Columns,
    array_specs,
    as_bytes,
    map_columns,
    named_arrays,
    num_rows,
    plain_arrays,
)
from psflow.ps_runtime.data.non_finite import ALL_FINITE, UNKNOWN, NonFiniteCells, Source, non_finite_cells
from psflow.ps_runtime.data.record_stream import RecordStream
from psflow.ps_runtime.data.splittable import SplittableInput, batching_faults, is_int
from psflow.ps_runtime.errors import InputError, did_you_mean
from psflow.ps_runtime.specs.schema import MATRIX, InputSchema, Scaling
from psflow.ps_runtime.specs.schema_enforcement import id_fault

__all__ = ["MATRIX", "Dataset"]

NUM_PERMUTATIONS_KEPT = 3
"""Around the end of an epoch the workers read two; a third spares requeued ranges a recomputation."""


@dataclass(frozen=True, eq=False)
class Dataset(SplittableInput):
    """Records in memory, which psflow splits over the workers by ranges of rows.

    Parameters
    ----------
    features : array or dict of str to array
        Rows on axis 0; no object dtype. NaN is allowed here: who trains or evaluates on it says what becomes of it.
    labels : array, dict of str to array, or None
        As many rows as `features`.
    batch_size : int
        Records of a batch, >= 1. The last batch of an epoch may be smaller.
    num_epochs : int or None
        How often to read the records, >= 1; None: for ever.
    shuffle_seed : int or None
        >= 0: each epoch has an order of its own, the same for everyone; None: the order of the arrays.
    columns : tuple of str
        Names of the columns of ``features["features"]``, where the data come from a table; else empty.
    label : str or None
        The column or array that the labels are, where it has a name.
    scaling : Scaling or None
        How ``features["features"]`` was made of stored values; None: they are as stored. It needs `columns`.
    unused : tuple of str
        Columns or arrays of the source that are neither features nor labels.
    num_ids : mapping of str to int
        The features that are ids, by name, and how many there are, >= 1: they are integers in [0, num_ids).
    embedding : mapping of str to int
        The ids for which a deep network is to learn vectors, by the name of the feature, and their size, >= 1.
    admit_after : mapping of str to int
        By the name of a feature of ids: a row of its sparse table is created when so many pushes, >= 1, touched it.
    expire_after_steps : mapping of str to int
        By the name of a feature of ids: a row of its sparse table that no push has touched for so many steps, >= 1, is
        forgotten when a checkpoint is made.
    source : Source
        Where the records come from, for error texts.
    non_finite : NonFiniteCells
        The blank, NaN and infinite cells that were found when it was opened as an input, before rows were left out.

    Raises
    ------
    InputError
        With all faults.

    Notes
    -----
    Arrays that are C-contiguous and native-endian are not copied: do not change yours afterwards.

    Examples
    --------
    >>> data = Dataset({"x": [0, 1, 2, 3]}, [1, 3, 5, 7]).batch(2).repeat(10)
    >>> data.num_records, data.batch_size, data.num_epochs
    (4, 2, 10)
    >>> data.read(0, 1, 3)
    ({'x': array([1, 2])}, array([3, 5]))
    """

    features: Columns
    labels: Columns | None = None
    batch_size: int = 1
    num_epochs: int | None = 1
    shuffle_seed: int | None = None
    columns: tuple[str, ...] = ()
    label: str | None = None
    scaling: Scaling | None = None
    unused: tuple[str, ...] = ()
    num_ids: Mapping[str, int] = field(default_factory=dict)
    embedding: Mapping[str, int] = field(default_factory=dict)
    admit_after: Mapping[str, int] = field(default_factory=dict)
    expire_after_steps: Mapping[str, int] = field(default_factory=dict)
    source: Source = UNKNOWN
    non_finite: NonFiniteCells = ALL_FINITE

    def __post_init__(self) -> None:
        faults = batching_faults(self.batch_size, self.num_epochs, self.shuffle_seed)
        try:
            features, labels = plain_arrays(self.features, self.labels)
        except InputError as error:
            raise InputError((*error.faults, *faults)) from None
        columns = tuple(self.columns)
        faults += _faults_of_column_names(columns, features)
        faults += _faults_of_ids(self._declared, features)
        if self.scaling is not None and not columns:
            faults.append("a scaling is given without columns: expected the names of the columns that it applies to")
        if faults:
            raise InputError(tuple(faults))
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "columns", columns)
        for what, declared in self._declared.items():
            object.__setattr__(self, what, {name: int(number) for name, number in declared.items()})

    @staticmethod
    def from_generator(generator: Callable[[], Iterable[Any]]) -> RecordStream:
        """Return the records that a generator function gives, one by one: with `map` and `batch`, not in memory.

        Parameters
        ----------
        generator : callable
            Returns an iterable of records; called for each reading.
        """
        return RecordStream(generator)

    def batch(self, batch_size: int) -> Dataset:
        """Return the data set with batches of `batch_size` records."""
        return replace(self, batch_size=batch_size)

    def repeat(self, num_epochs: int | None = None) -> Dataset:
        """Return the data set read `num_epochs` times; None: for ever."""
        return replace(self, num_epochs=num_epochs)

    def shuffle(self, seed: int) -> Dataset:
        """Return the data set in an order of its own for each epoch, which `seed` determines."""
        return replace(self, shuffle_seed=seed)

    def with_features(self, features: Columns, **changes: Any) -> Dataset:
        """Return the data set with other features and `changes`; ids that are still there stay declared."""
        still: dict[str, Any] = {
            what: {name: number for name, number in declared.items() if name in features}
            for what, declared in self._declared.items()
        }
        return replace(self, features=features, **still, **changes)

    @property
    def _declared(self) -> dict[str, Mapping[str, int]]:
        """What is said of ids, by the name of the argument."""
        return {
            "num_ids": self.num_ids,
            "embedding": self.embedding,
            "admit_after": self.admit_after,
            "expire_after_steps": self.expire_after_steps,
        }

    @property
    def num_records(self) -> int:
        """Number of rows."""
        return num_rows(self.features)

    @property
    def window_records(self) -> int:
        """1: all records are in memory."""
        return 1

    @property
    def column_names(self) -> Mapping[str, Sequence[str]]:
        """The columns of a table by the array that they are in: its matrix, and its labels if it has some."""
        labels = () if self.label is None else (self.label,)
        return {f"features[{MATRIX!r}]": self.columns, "labels": labels} if self.columns else {}

    def read(self, epoch: int, start: int, stop: int) -> tuple[Columns, Columns | None]:
        """Return rows ``[start, stop)`` of the order of `epoch`; see `SplittableInput.read`.

        Notes
        -----
        Deterministic given the seed; thread-safe.
        """
        if epoch < 0 or not 0 <= start < stop <= self.num_records:
            raise InputError(
                (
                    f"expected an epoch >= 0 and a range within the {self.num_records} records, "
                    f"got epoch {epoch}, records [{start}, {stop})",
                )
            )
        rows = slice(start, stop) if self.shuffle_seed is None else self._rows(epoch, start, stop)
        features = map_columns(lambda array: _read_only(array[rows]), self.features)
        labels = None if self.labels is None else map_columns(lambda array: _read_only(array[rows]), self.labels)
        return features, labels

    def distinct_labels(self) -> Columns | None:
        """Return all labels."""
        return self.labels

    def place_of_label(self, index: int, where: str) -> str:
        """Return the row `index`: each has a label."""
        return f"row {index} of {where}"

    def first_non_finite_cell(self, epoch: int, start: int, stop: int) -> str:
        """Return column and row of such a cell; see `SplittableInput.first_non_finite_cell`."""
        rows = self._rows(epoch, start, stop)
        cells, _ = non_finite_cells(*self.read(epoch, start, stop), self.column_names)
        columns = (
            replace(column, first_record=record, first_row=record + self.source.first_row)
            for column in cells.columns
            for record in [int(rows[column.first_record])]
        )
        return replace(cells, source=self.source, columns=tuple(columns)).first

    def schema(self) -> InputSchema:
        """Return what a record looks like."""
        features = (
            replace(
                spec,
                num_ids=self.num_ids.get(spec.name, 0),
                embedding=self.embedding.get(spec.name, 0),
                lifetime=RowLifetime(self.admit_after.get(spec.name, 1), self.expire_after_steps.get(spec.name)),
            )
            for spec in array_specs(self.features)
        )
        return InputSchema(
            tuple(features),
            () if self.labels is None else array_specs(self.labels),
            self.columns,
            self.label,
            self.scaling,
        )

    def digest(self) -> str:
        """Return 32 hexadecimal digits that differ for different records.

        Notes
        -----
        The same for the same records in any process; batch size, epochs and seed do not count. Reads all data.
        """
        arrays = sorted(named_arrays(self.features, self.labels), key=lambda named: named[0])
        facts = [[name, array.dtype.str, array.shape] for name, array in arrays]
        digest = hashlib.blake2b(json.dumps([facts, self.columns]).encode(), digest_size=16)
        for _, array in arrays:
            digest.update(as_bytes(array).data)
        return digest.hexdigest()

    def _rows(self, epoch: int, start: int, stop: int) -> NDArray[np.int64]:
        """Return which rows of the arrays stand at ``[start, stop)`` of the order of `epoch`."""
        if self.shuffle_seed is None:
            return np.arange(start, stop)
        return _permutation(self.shuffle_seed, epoch, self.num_records)[start:stop]


def _faults_of_column_names(columns: tuple[str, ...], features: Columns) -> list[str]:
    if not columns:
        return []
    matrix = features.get(MATRIX) if isinstance(features, dict) else None
    if matrix is None or matrix.ndim != 2 or matrix.shape[1] != len(columns):
        shape = "none" if matrix is None else f"one of shape {list(matrix.shape)}"
        return [f"{len(columns)} columns are named: expected a matrix {MATRIX!r} of as many columns, got {shape}"]
    return []


def _faults_of_ids(said: Mapping[str, Mapping[str, int]], features: Columns) -> Iterator[str]:
    known = features if isinstance(features, dict) else {}
    for what, declared in said.items():
        if not isinstance(declared, Mapping):
            yield f"{what} is {declared!r}: expected a dict from names of features to ints"
            return
        for name, number in declared.items():
            if name not in known:
                yield f"{what} names {name!r}: expected a feature with a name{did_you_mean(name, known)}"
            if not is_int(number, 1):
                yield f"{what} of {name!r} is {number!r}: expected an int >= 1"
    num_ids = said["num_ids"]
    yield from (
        f"{what} names {name!r}: expected its num_ids, too"
        for what, declared in said.items()
        for name in declared
        if name not in num_ids
    )
    for name, number in num_ids.items():
        if name not in known or not is_int(number, 1):
            continue
        if known[name].dtype.kind not in "iu":
            yield f"features[{name!r}] has dtype {known[name].dtype}: expected integers, as it is declared as ids"
        elif (fault := id_fault(known[name], number)) is not None:
            yield f"features[{name!r}] {fault}"


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


@functools.lru_cache(maxsize=NUM_PERMUTATIONS_KEPT)
def _permutation(seed: int, epoch: int, num_records: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(num_records)
