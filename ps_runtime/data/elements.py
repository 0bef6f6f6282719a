"""Elements that are addressed by number and computed when they are read, in any order."""

from __future__ import annotations

import functools
import itertools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from psflow.ps_runtime.data.nests import call_with, leaves, map_nest, owned, stacked
from psflow.ps_runtime.data.ordered_map import ordered_map


class ElementAddress(NamedTuple):
    """The pass over a data set and the number of the element in it; both from 0."""

    epoch: int
    number: int


class Elements(ABC):
    """Elements by number. Thread-safe if the functions of the user are."""

    @functools.cached_property
    def num_elements(self) -> int:
        """Elements of each pass, >= 0."""
        return self.count()

    @abstractmethod
    def count(self) -> int:
        """Return `num_elements`, which is cached."""

    @abstractmethod
    def each(self, addresses: Iterable[ElementAddress]) -> Iterator[Any]:
        """Yield the elements of some valid addresses, in that order."""

    @abstractmethod
    def place(self, address: ElementAddress) -> str:
        """Return the name of an element in error messages, such as ``record 3``."""

    @abstractmethod
    def is_row(self, first: ElementAddress, last: ElementAddress) -> bool:
        """Whether the elements from one address to another are contiguous in their source."""

    def places(self, addresses: Sequence[ElementAddress]) -> str:
        """Return the name of the elements of some addresses, at least one, in error messages."""
        first, last = self.place(addresses[0]), self.place(addresses[-1])
        is_range = all(next_one == (one.epoch, one.number + 1) for one, next_one in itertools.pairwise(addresses))
        if is_range and self.is_row(addresses[0], addresses[-1]):
            return f"{first} to {last}"
        return f"{len(addresses)} elements, shuffled or joined: the first is {first}, the last {last}"

    def block(self, addresses: Sequence[ElementAddress]) -> Any:
        """Return the elements of some addresses, at least one, stacked."""
        return stacked(list(self.each(addresses)), self.places(addresses))


@dataclass(frozen=True, eq=False)
class ArrayElements(Elements):
    """The rows of a nest of arrays of one length, without a copy."""

    nest: Any

    def count(self) -> int:
        """See `Elements`."""
        return len(next(leaves(self.nest)))

    def each(self, addresses: Iterable[ElementAddress]) -> Iterator[Any]:
        """See `Elements`."""
        for _, number in addresses:
            yield map_nest(operator.itemgetter(number), self.nest)

    def block(self, addresses: Sequence[ElementAddress]) -> Any:
        """See `Elements`."""
        rows = [number for _, number in addresses]
        return map_nest(operator.itemgetter(rows), self.nest)

    def place(self, address: ElementAddress) -> str:
        """See `Elements`."""
        return f"record {address.number}"

    def is_row(self, first: ElementAddress, last: ElementAddress) -> bool:
        """See `Elements`."""
        return True


@dataclass(frozen=True, eq=False)
class Mapped(Elements):
    """The results of a function for each element, in `num_threads` threads."""

    source: Elements
    function: Callable[..., Any]
    num_threads: int

    def count(self) -> int:
        """See `Elements`."""
        return self.source.num_elements

    def each(self, addresses: Iterable[ElementAddress]) -> Iterator[Any]:
        """See `Elements`."""
        asked, read = itertools.tee(addresses)
        return ordered_map(self._made, zip(asked, self.source.each(read), strict=True), self.num_threads)

    def _made(self, addressed: tuple[ElementAddress, Any]) -> Any:
        address, element = addressed
        return owned(call_with(self.function, element, lambda: self.place(address)))

    def place(self, address: ElementAddress) -> str:
        """See `Elements`."""
        return self.source.place(address)

    def is_row(self, first: ElementAddress, last: ElementAddress) -> bool:
        """See `Elements`."""
        return self.source.is_row(first, last)


@dataclass(frozen=True, eq=False)
class Batched(Elements):
    """Consecutive elements, stacked; the last batch may be smaller, or is left out."""

    source: Elements
    batch_size: int
    drops_remainder: bool

    def count(self) -> int:
        """See `Elements`."""
        whole, rest = divmod(self.source.num_elements, self.batch_size)
        return whole + (rest > 0 and not self.drops_remainder)

    def each(self, addresses: Iterable[ElementAddress]) -> Iterator[Any]:
        """See `Elements`."""
        return (self.source.block(self._records(address)) for address in addresses)

    def place(self, address: ElementAddress) -> str:
        """See `Elements`."""
        return f"batch {address.number} ({self.source.places(self._records(address))})"

    def is_row(self, first: ElementAddress, last: ElementAddress) -> bool:
        """See `Elements`."""
        return self.source.is_row(self._records(first)[0], self._records(last)[-1])

    def _records(self, address: ElementAddress) -> list[ElementAddress]:
        start = address.number * self.batch_size
        stop = min(start + self.batch_size, self.source.num_elements)
        return [ElementAddress(address.epoch, number) for number in range(start, stop)]


@dataclass(frozen=True, eq=False)
class Zipped(Elements):
    """Tuples of one element of each source, up to the end of the shortest."""

    sources: tuple[Elements, ...]

    def count(self) -> int:
        """See `Elements`."""
        return min(source.num_elements for source in self.sources)

    def each(self, addresses: Iterable[ElementAddress]) -> Iterator[Any]:
        """See `Elements`."""
        asked = itertools.tee(addresses, len(self.sources))
        return zip(*(source.each(each) for source, each in zip(self.sources, asked, strict=True)), strict=True)

    def place(self, address: ElementAddress) -> str:
        """See `Elements`."""
        return " with ".join(dict.fromkeys(source.place(address) for source in self.sources))

    def is_row(self, first: ElementAddress, last: ElementAddress) -> bool:
        """See `Elements`."""
        return all(source.is_row(first, last) for source in self.sources)


@dataclass(frozen=True, eq=False)
class Concatenated(Elements):
    """The elements of one source, then those of another."""

    first: Elements
    second: Elements

    def count(self) -> int:
        """See `Elements`."""
        return self.first.num_elements + self.second.num_elements

    def each(self, addresses: Iterable[ElementAddress]) -> Iterator[Any]:
        """See `Elements`."""
        for is_first, some in itertools.groupby(addresses, lambda address: address.number < self.first.num_elements):
            source = self.first if is_first else self.second
            yield from source.each(address if is_first else self._in_second(address) for address in some)

    def place(self, address: ElementAddress) -> str:
        """See `Elements`."""
        if address.number < self.first.num_elements:
            return self.first.place(address)
        return f"{self.second.place(self._in_second(address))} of the second data set"

    def is_row(self, first: ElementAddress, last: ElementAddress) -> bool:
        """See `Elements`."""
        if last.number < self.first.num_elements:
            return self.first.is_row(first, last)
        return first.number >= self.first.num_elements and self.second.is_row(
            self._in_second(first), self._in_second(last)
        )

    def _in_second(self, address: ElementAddress) -> ElementAddress:
        return ElementAddress(address.epoch, address.number - self.first.num_elements)


@dataclass(frozen=True, eq=False)
class Enumerated(Elements):
    """Tuples of a number and an element."""

    source: Elements
    start: int

    def count(self) -> int:
        """See `Elements`."""
        return self.source.num_elements

    def each(self, addresses: Iterable[ElementAddress]) -> Iterator[Any]:
        """See `Elements`."""
        asked, read = itertools.tee(addresses)
        return ((np.int64(self.start + a.number), e) for a, e in zip(asked, self.source.each(read), strict=True))

    def place(self, address: ElementAddress) -> str:
        """See `Elements`."""
        return self.source.place(address)

    def is_row(self, first: ElementAddress, last: ElementAddress) -> bool:
        """See `Elements`."""
        return self.source.is_row(first, last)
