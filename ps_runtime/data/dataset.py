"""A data set in memory, and the order in which each epoch reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.row_lifetime import RowLifetime
from psflow.ps_runtime.data.arrays import (
    Array,
    Columns,
    array_specs,
    digest_of,
    map_columns,
    num_rows,
    plain_arrays,
    read_only_rows,
)
from psflow.ps_runtime.data.declared_columns import faults_of_column_names, faults_of_ids
from psflow.ps_runtime.data.given_arrays import arrays_of, integers
from psflow.ps_runtime.data.lazy_dataset import LazyDataset
from psflow.ps_runtime.data.nests import map_nest
from psflow.ps_runtime.data.non_finite import ALL_FINITE, UNKNOWN, NonFiniteCells, RecordSource, non_finite_cells
from psflow.ps_runtime.data.record_stream import RecordStream
from psflow.ps_runtime.data.row_order import AS_STORED, RowOrder
from psflow.ps_runtime.data.scale import faults_of_stored, scaled_rows
from psflow.ps_runtime.data.splittable import KnownInput, batching_faults
from psflow.ps_runtime.data.transformations import Transformations, check_at_least, check_flag, check_seed
from psflow.ps_runtime.data.zipping import zipped
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.numeric import read_only
from psflow.ps_runtime.specs.schema import MATRIX, InputSchema, Scaling


@dataclass(frozen=True, eq=False)
class Dataset(Transformations, KnownInput):
    """Records in memory, which psflow splits over the workers by ranges of rows.

    Parameters
    ----------
    features : array or dict of str to array
        Rows on axis 0; no object dtype. NaN is allowed; `non_finite` of training and evaluation handles it.
    labels : array, dict of str to array, or None
        As many rows as `features`.
    batch_size : int
        Records of a batch, >= 1. The last batch of an epoch may be smaller. An input_fn that returns a data set with
        a batch size of 1 must have called `batch`.
    num_epochs : int or None
        Number of passes over the records, >= 1; None: forever.
    shuffle_seed : int or None
        >= 0: each epoch has its own order, the same in every process; None: the order of the arrays.
    columns : tuple of str
        Names of the columns of ``features["features"]``, if the data come from a table; else empty.
    label : str or None
        Name of the column or array of the labels, if it has one.
    scaling : Scaling or None
        How ``features["features"]`` was computed from stored values; None: it is as stored. It needs `columns`.
    is_stored : bool
        Whether ``features["features"]`` holds stored values, as integers, to which `scaling` applies as they are read.
    unused : tuple of str
        Columns or arrays of the source that are neither features nor labels.
    num_ids : mapping of str to int
        By the name of a categorical feature: its number of ids, >= 1; its values are integers in [0, num_ids).
    embedding : mapping of str to int
        By the name of a categorical feature that a deep network embeds: the size of its vectors, >= 1.
    admit_after : mapping of str to int
        By the name of a categorical feature: a row of its sparse table is created once this many pushes, >= 1, have
        touched it.
    expire_after_steps : mapping of str to int
        By the name of a categorical feature: a row of its sparse table that no push has touched for this many steps,
        >= 1, is removed when a checkpoint is made.
    source : RecordSource
        The origin of the records, for error messages.
    non_finite : NonFiniteCells
        The missing, NaN and infinite cells that were found when it was opened, before rows were left out.
    order : RowOrder
        The settings of `shuffle`, `repeat` and `batch`.

    Raises
    ------
    InputError
        Lists all faults.

    Notes
    -----
    Methods other than `shuffle`, `repeat` and `batch` return elements that are computed when they are read.
    C-contiguous, native-endian arrays are not copied: do not change them afterwards.

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
    is_stored: bool = False
    unused: tuple[str, ...] = ()
    num_ids: Mapping[str, int] = field(default_factory=dict)
    embedding: Mapping[str, int] = field(default_factory=dict)
    admit_after: Mapping[str, int] = field(default_factory=dict)
    expire_after_steps: Mapping[str, int] = field(default_factory=dict)
    source: RecordSource = UNKNOWN
    non_finite: NonFiniteCells = ALL_FINITE
    order: RowOrder = AS_STORED

    def __post_init__(self) -> None:
        faults = batching_faults(self.batch_size, self.num_epochs, self.shuffle_seed)
        try:
            features, labels = plain_arrays(self.features, self.labels)
        except InputError as error:
            raise InputError((*error.faults, *faults)) from None
        columns = tuple(self.columns)
        faults += faults_of_column_names(columns, features)
        faults += faults_of_ids(self._declared, features)
        if self.scaling is not None and not columns:
            faults.append("a scaling is given without columns: expected the names of the columns that it applies to")
        elif self.is_stored and not faults:
            faults += faults_of_stored(features, self.scaling)
        faults += self.order.faults()
        if faults:
            raise InputError(tuple(faults))
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "columns", columns)
        for what, declared in self._declared.items():
            object.__setattr__(self, what, {name: int(number) for name, number in declared.items()})

    @staticmethod
    def from_generator(generator: Callable[[], Iterable[Any]]) -> RecordStream:
        """Return the elements that a generator function yields, one by one, as a stream.

        Parameters
        ----------
        generator : callable
            Returns an iterable; called for each reading. It may reuse its arrays.
        """
        return RecordStream.of(generator)

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset | LazyDataset:
        """Return the rows of arrays: of features, of a tuple (features, labels), or of any nest of arrays.

        Raises
        ------
        InputError
            If the numbers of rows differ, there is no array, or one does not hold numbers, booleans or texts.
        """
        rows = LazyDataset.of_rows(tensors)
        if not rows.elements.num_elements:
            return rows
        if not isinstance(tensors, tuple):
            return Dataset(tensors)
        is_pair = len(tensors) == 2 and not any(isinstance(part, tuple) for part in tensors)
        return Dataset(*tensors) if is_pair else rows

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset | LazyDataset:
        """Return a data set of one element, `tensors`, a nest of arrays."""
        arrays = arrays_of("from_tensors", tensors)
        return Dataset.from_tensor_slices(map_nest(lambda array: array[np.newaxis], arrays))

    @staticmethod
    def range(*bounds: int) -> Dataset | LazyDataset:
        """Return the integers of ``range(*bounds)``, as int64, in memory."""
        return Dataset.from_tensor_slices(integers(bounds))

    @staticmethod
    def zip(*data_sets: Any) -> LazyDataset | RecordStream:
        """Return tuples of one element of each data set, up to the end of the shortest; accepts one tuple, too."""
        return zipped(data_sets)

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:  # noqa: D102
        check_at_least("batch", "batch_size", batch_size, 1)
        check_flag("batch", "drop_remainder", drop_remainder)
        if self.is_batched:
            raise _out_of_order("batch", "a second time, which would make batches of batches: call it once")
        order = replace(self.order, num_joined=self.num_epochs, drop_remainder=bool(drop_remainder), is_batched=True)
        return replace(self, batch_size=batch_size, num_epochs=None if self.num_epochs is None else 1, order=order)

    def shuffle(  # noqa: D102
        self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool = True
    ) -> Dataset:
        given = check_seed(buffer_size, seed, reshuffle_each_iteration)
        if self.is_batched:
            raise _out_of_order("shuffle", "after batch, which would mix whole batches: call it before batch")
        if self.num_epochs != 1:
            raise _out_of_order("shuffle", "after repeat, which would mix epochs: call it before repeat")
        if self.shuffle_seed is not None:
            raise _out_of_order("shuffle", "a second time: call it once")
        order = replace(self.order, buffer_size=int(buffer_size), reshuffles=bool(reshuffle_each_iteration))
        return replace(self, shuffle_seed=given, order=order)

    def repeat(self, num_epochs: int | None = None) -> Dataset:  # noqa: D102
        if num_epochs is not None:
            check_at_least("repeat", "num_epochs", num_epochs, 1)
        if num_epochs is None or self.num_epochs is None:
            return replace(self, num_epochs=None)
        return replace(self, num_epochs=self.num_epochs * num_epochs)

    def by_number(self) -> LazyDataset:
        """Return the elements by number, each computed when it is read.

        Raises
        ------
        InputError
            If columns, ids or a scaling are declared, which the computed elements would lose.
        """
        declared = [name for name in ("columns", "num_ids", "embedding") if getattr(self, name)]
        if declared:
            raise InputError(
                (
                    f"a Dataset that declares {' and '.join(declared)} takes only shuffle, repeat and batch, in this "
                    "order: map and the like would lose the declaration; change the arrays before",
                )
            )
        lazy = LazyDataset.of_rows(self.features if self.labels is None else (self.features, self.labels))
        return self.order.applied_to(lazy, self.shuffle_seed, self.batch_size, self.num_epochs)

    def one_epoch(self) -> Dataset:  # noqa: D102
        if self.order.num_joined is None:
            return replace(self, num_epochs=1, order=replace(self.order, num_joined=1))
        return self

    @property
    def is_batched(self) -> bool:
        """Whether `batch` was called, so that further methods such as `map` and `take` work on batches."""
        return self.order.is_batched

    def in_batches(self, batch_size: int, num_epochs: int | None, shuffle_seed: int | None) -> Dataset:
        """Return the records in batches of `batch_size`, 1 included, in the order of a seed."""
        order = replace(self.order, is_batched=True)
        return replace(self, batch_size=batch_size, num_epochs=num_epochs, shuffle_seed=shuffle_seed, order=order)

    def with_features(self, features: Columns, **changes: Any) -> Dataset:
        """Return the data set with other features and `changes`; the ids of remaining features stay declared."""
        still: dict[str, Any] = {
            what: {name: number for name, number in declared.items() if name in features}
            for what, declared in self._declared.items()
        }
        return replace(self, features=features, **still, **changes)

    @property
    def _declared(self) -> dict[str, Mapping[str, int]]:
        """The declarations of ids, by the name of the argument."""
        return {
            "num_ids": self.num_ids,
            "embedding": self.embedding,
            "admit_after": self.admit_after,
            "expire_after_steps": self.expire_after_steps,
        }

    @cached_property
    def num_records(self) -> int:
        """Number of records of an epoch."""
        return self.order.num_records(self._num_rows, self.batch_size)

    @property
    def num_examples(self) -> int:
        """Number of distinct rows that an epoch reads."""
        return min(self.num_records, self._num_rows)

    @property
    def window_records(self) -> int:
        """1: all records are in memory."""
        return 1

    @property
    def column_names(self) -> Mapping[str, Sequence[str]]:
        """The columns of a table, by the array that holds them: its matrix, and its labels if there are any."""
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
        features, labels = self._read_only
        rows_of: Callable[[Array], Array]
        if self.shuffle_seed is None and stop <= self._num_rows:
            rows_of = itemgetter(slice(start, stop))
        else:
            rows_of = partial(read_only_rows, rows=self._rows(epoch, start, stop))
        return self._scaled(map_columns(rows_of, features)), None if labels is None else map_columns(rows_of, labels)

    def distinct_labels(self) -> Columns | None:
        """Return all labels."""
        return self.labels

    def place_of_label(self, index: int, where: str) -> str:
        """Return the row `index`: each row has a label."""
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
        """Return the schema of a record."""
        features = (
            replace(
                spec,
                num_ids=self.num_ids.get(spec.name, 0),
                embedding=self.embedding.get(spec.name, 0),
                lifetime=RowLifetime(self.admit_after.get(spec.name, 1), self.expire_after_steps.get(spec.name)),
            )
            for spec in array_specs(self._scaled(map_columns(itemgetter(slice(0, 1)), self.features)))
        )
        return InputSchema(
            tuple(features),
            () if self.labels is None else array_specs(self.labels),
            self.columns,
            self.label,
            self.scaling,
        )

    def order_facts(self) -> list[Any]:
        """Return the facts that determine order and batches; see `KnownInput.order_facts`."""
        return [self.batch_size, self.shuffle_seed, *astuple(self.order)]

    def digest(self) -> str:
        """Return 32 hexadecimal digits that identify the records.

        Notes
        -----
        The same for the same records in any process; batch size, epochs and seed do not count. Reads all data.
        """
        return digest_of(self.features, self.labels, self.columns, self.scaling if self.is_stored else None)

    def scaled(self) -> Dataset:
        """Return the data set with features as they are read; four times as large if they are stored as bytes."""
        return replace(self, features=self._scaled(self.features), is_stored=False) if self.is_stored else self

    def _scaled(self, features: Columns) -> Columns:
        """Return some rows as they are read."""
        if not self.is_stored:
            return features
        assert self.scaling is not None, "it was checked"
        return scaled_rows(features, self.scaling)

    @cached_property
    def _read_only(self) -> tuple[Columns, Columns | None]:
        """Features and labels as read-only views; so are views of them."""
        labels = None if self.labels is None else map_columns(read_only, self.labels)
        return map_columns(read_only, self.features), labels

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_read_only"}  # it would double the bytes

    @cached_property
    def _num_rows(self) -> int:
        return num_rows(self.features)

    def _rows(self, epoch: int, start: int, stop: int) -> NDArray[np.int64]:
        """Return the rows of the arrays at ``[start, stop)`` in the order of `epoch`."""
        return self.order.rows(self.shuffle_seed, self._num_rows, self.batch_size, epoch, start, stop)


def _out_of_order(method: str, why: str) -> InputError:
    meant = f"by_number().{method}(...), which computes batches as they are read"
    return InputError((f"{method} comes {why}; or, if that is meant, {meant}",))
