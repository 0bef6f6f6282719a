"""Data sets whose elements are computed when they are read, by number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from psflow.ps_runtime.data.elements import (
    ArrayElements,
    Batched,
    Concatenated,
    ElementAddress,
    Elements,
    Enumerated,
    Mapped,
    Zipped,
)
from psflow.ps_runtime.data.given_arrays import arrays_of, rows_of
from psflow.ps_runtime.data.nests import leaves, map_nest
from psflow.ps_runtime.data.record_stream import RecordStream
from psflow.ps_runtime.data.reordered_elements import ElementRange, Repeated, Shuffled
from psflow.ps_runtime.data.transformations import (
    Transformations,
    check_at_least,
    check_callable,
    check_flag,
    check_other,
    check_seed,
)
from psflow.ps_runtime.errors import InputError


@dataclass(frozen=True, eq=False)
class LazyDataset(Transformations):
    """The result of methods such as `Dataset.map`: an input_fn may return it once it is batched.

    Each replica computes only the batches that it is granted.
    """

    elements: Elements
    num_epochs: int | None = 1
    is_batched: bool = False
    elements_of_epoch: Elements | None = None

    @classmethod
    def of_rows(cls, nest: Any) -> LazyDataset:
        """Return the rows of arrays; InputError if their numbers differ, or there is no array."""
        arrays = map_nest(rows_of, arrays_of("from_tensor_slices", nest))
        lengths = sorted({len(array) for array in leaves(arrays)})
        if len(lengths) != 1:
            raise InputError((f"from_tensor_slices: expected arrays of one length, got {lengths or 'no array'}",))
        return cls(ArrayElements(arrays))

    def map(self, function: Callable[..., Any], num_parallel_calls: int | None = None) -> LazyDataset:  # noqa: D102
        check_callable("map", function)
        num_threads = 1 if num_parallel_calls is None else num_parallel_calls
        check_at_least("map", "num_parallel_calls", num_threads, 1)
        return self._each(lambda elements: Mapped(elements, function, num_threads))

    def batch(self, batch_size: int, drop_remainder: bool = False) -> LazyDataset:  # noqa: D102
        check_at_least("batch", "batch_size", batch_size, 1)
        check_flag("batch", "drop_remainder", drop_remainder)
        whole = self._in_passes_of(batch_size)
        batches = whole._each(lambda elements: Batched(elements, int(batch_size), drop_remainder))
        return replace(batches, is_batched=True)

    def shuffle(  # noqa: D102
        self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool = True
    ) -> LazyDataset:
        given, elements = check_seed(buffer_size, seed, reshuffle_each_iteration), self._all("shuffle")
        size = max(1, min(int(buffer_size), elements.num_elements))
        return LazyDataset(Shuffled(elements, size, given, reshuffle_each_iteration), 1, self.is_batched)

    def repeat(self, num_epochs: int | None = None) -> LazyDataset:  # noqa: D102
        if num_epochs is not None:
            check_at_least("repeat", "num_epochs", num_epochs, 1)
        if num_epochs is None or self.num_epochs is None:
            return replace(self, num_epochs=None)
        return replace(self, num_epochs=self.num_epochs * int(num_epochs))

    def take(self, count: int) -> LazyDataset:  # noqa: D102
        check_at_least("take", "count", count, 0)
        elements = self._at_least(count)
        return LazyDataset(ElementRange(elements, 0, min(int(count), elements.num_elements)), 1, self.is_batched)

    def skip(self, count: int) -> LazyDataset:  # noqa: D102
        check_at_least("skip", "count", count, 0)
        elements = self._all("skip")
        last = elements.num_elements
        return LazyDataset(ElementRange(elements, min(int(count), last), last), 1, self.is_batched)

    def concatenate(self, other: Transformations) -> Transformations:  # noqa: D102
        check_other("concatenate", other)
        second = other.by_number()
        if second is None:
            return self.stream().concatenate(other)
        both = Concatenated(self._all("concatenate"), second._all("concatenate"))
        return LazyDataset(both, 1, self.is_batched and second.is_batched)

    def enumerate(self, start: int = 0) -> LazyDataset:  # noqa: D102
        check_at_least("enumerate", "start", start, 0)
        return LazyDataset(Enumerated(self._all("enumerate"), int(start)), 1, self.is_batched)

    def by_number(self) -> LazyDataset:  # noqa: D102
        return self

    def stream(self) -> RecordStream:  # noqa: D102
        of_epoch = None if self.elements_of_epoch is None else partial(_read_pass, self.elements_of_epoch)
        last = ElementAddress(0, self.elements.num_elements - 1)
        is_row = last.number < 0 or self.elements.is_row(ElementAddress(0, 0), last)
        name = "the data set" if is_row else "the shuffled or joined data set"
        one_pass = RecordStream(partial(_read_pass, self.elements), name, self.is_batched, of_epoch)
        return one_pass if self.num_epochs == 1 else one_pass.repeat(self.num_epochs)

    def one_epoch(self) -> LazyDataset:  # noqa: D102
        if self.num_epochs is None or self.is_batched:
            return LazyDataset(self.elements_of_epoch or self.elements, 1, self.is_batched)
        return self

    @staticmethod
    def zipped(data_sets: tuple[LazyDataset, ...]) -> LazyDataset:
        """Return tuples of one element of each, up to the end of the shortest."""
        is_batched = all(each.is_batched for each in data_sets)
        ends = [each._all("zip").num_elements for each in data_sets if each.num_epochs is not None]
        if ends:
            shortest = min(ends)
            parts = tuple(each.take(shortest).elements for each in data_sets)
            return LazyDataset(Zipped(parts), 1, is_batched)
        length = math.lcm(*(each.elements.num_elements for each in data_sets))
        once = Zipped(tuple(each.one_epoch().elements for each in data_sets))
        return LazyDataset(Zipped(tuple(each._at_least(length) for each in data_sets)), None, is_batched, once)

    def _each(self, change: Callable[[Elements], Elements]) -> LazyDataset:
        """Return this data set with `change` applied to its elements, for training and for one epoch."""
        of_epoch = None if self.elements_of_epoch is None else change(self.elements_of_epoch)
        return replace(self, elements=change(self.elements), elements_of_epoch=of_epoch)

    def _all(self, method: str) -> Elements:
        """Return the elements of all passes as one pass."""
        if self.num_epochs is None:
            raise InputError((f"{method} comes after repeat(), which never ends: call {method} before it",))
        return self.elements if self.num_epochs == 1 else Repeated(self.elements, self.num_epochs)

    def _at_least(self, count: int) -> Elements:
        """Return enough passes, joined into one, for `count` elements, if there are so many."""
        if self.num_epochs is not None:
            return self._all("take")
        if not self.elements.num_elements:
            return self.elements
        return Repeated(self.elements, max(1, -(-count // self.elements.num_elements)))

    def _in_passes_of(self, batch_size: int) -> LazyDataset:
        """Return this data set in longer passes: a batch may span the end of one pass and the start of the next."""
        if self.num_epochs is not None:
            return LazyDataset(self._all("batch"), 1, self.is_batched)
        num_passes = batch_size // math.gcd(batch_size, self.elements.num_elements)
        return replace(
            self,
            elements=Repeated(self.elements, int(num_passes)),
            elements_of_epoch=self.elements_of_epoch or self.elements,
        )


def _read_pass(elements: Elements, epoch: int) -> Iterator[Any]:
    return elements.each(ElementAddress(epoch, number) for number in range(elements.num_elements))
