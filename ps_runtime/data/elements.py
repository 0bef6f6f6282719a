"""Elements that are known by their numbers, each computed when it is read, in any order."""

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
from psflow.ps_runtime.data.shuffle_order import shuffled_window

__all__ = [
    "Address",
    "Batched",
    "Concatenated",
    "Elements",
    "Enumerated",
    "Mapped",
    "Part",
    "Repeated",
    "Rows",
    "Shuffled",
    "Zipped",
]


class Address(NamedTuple):
    """Which element of which pass over a data set; both from 0."""

    epoch: int
    number: int


class Elements(ABC):
    """Elements by number. Thread-safe, as far as functions of the user are."""

    @functools.cached_property
    def num_elements(self) -> int:
        """Elements of each pass, >= 0."""
        return self.count()

    @abstractmethod
    def count(self) -> int:
        """Return `num_elements`, which is asked for each element."""

    @abstractmethod
    def each(self, addresses: Iterable[Address]) -> Iterator[Any]:
        """Yield the elements of some addresses, each within the elements, in their order."""

    @abstractmethod
    def place(self, address: Address) -> str:
        """Return what error texts call an element, such as ``record 3``."""

    def block(self, addresses: Sequence[Address]) -> Any:
        """Return the elements of some addresses, at least one, stacked."""
        where = f"{self.place(addresses[0])} to {self.place(addresses[-1])}"
        return stacked(list(self.each(addresses)), where)


@dataclass(frozen=True, eq=False)
class Rows(Elements):
    """The rows of a nest of arrays of one length, without a copy."""

    nest: Any

    def count(self) -> int:
        """See `Elements`."""
        return len(next(leaves(self.nest)))

    def each(self, addresses: Iterable[Address]) -> Iterator[Any]:
        """See `Elements`."""
        for _, number in addresses:
            yield map_nest(operator.itemgetter(number), self.nest)

    def block(self, addresses: Sequence[Address]) -> Any:
        """See `Elements`."""
        rows = [number for _, number in addresses]
        return map_nest(operator.itemgetter(rows), self.nest)

    def place(self, address: Address) -> str:
        """See `Elements`."""
        return f"record {address.number}"


@dataclass(frozen=True, eq=False)
class Mapped(Elements):
    """What a function makes of each element, in `num_threads` threads."""

    source: Elements
    function: Callable[..., Any]
    num_threads: int

    def count(self) -> int:
        """See `Elements`."""
        return self.source.num_elements

    def each(self, addresses: Iterable[Address]) -> Iterator[Any]:
        """See `Elements`."""
        asked, read = itertools.tee(addresses)
        return ordered_map(self._made, zip(asked, self.source.each(read), strict=True), self.num_threads)

    def _made(self, addressed: tuple[Address, Any]) -> Any:
        address, element = addressed
        return owned(call_with(self.function, element, lambda: self.place(address)))

    def place(self, address: Address) -> str:
        """See `Elements`."""
        return self.source.place(address)


@dataclass(frozen=True, eq=False)
class Reordered(Elements):
    """Elements of `source` under other numbers."""

    source: Elements

    @abstractmethod
    def origin(self, address: Address) -> Address:
        """Return where the source has an element."""

    def each(self, addresses: Iterable[Address]) -> Iterator[Any]:
        """See `Elements`."""
        return self.source.each(map(self.origin, addresses))

    def block(self, addresses: Sequence[Address]) -> Any:
        """See `Elements`."""
        return self.source.block([self.origin(address) for address in addresses])

    def place(self, address: Address) -> str:
        """See `Elements`."""
        return self.source.place(self.origin(address))


@dataclass(frozen=True, eq=False)
class Shuffled(Reordered):
    """Windows of `buffer_size` elements, each mixed by itself; in each pass anew, unless all have the order of one."""

    buffer_size: int
    seed: int
    reshuffles: bool

    def count(self) -> int:
        """See `Elements`."""
        return self.source.num_elements

    def origin(self, address: Address) -> Address:
        """See `Reordered`."""
        epoch, number = address
        window, place = divmod(number, self.buffer_size)
        order_of = epoch if self.reshuffles else 0
        order = shuffled_window(self.seed, order_of, self.num_elements, self.buffer_size, window)
        return Address(epoch, int(order[place]))


@dataclass(frozen=True, eq=False)
class Part(Reordered):
    """The elements ``[start, stop)``, ``start <= stop``, of a pass."""

    start: int
    stop: int

    def count(self) -> int:
        """See `Elements`."""
        return self.stop - self.start

    def origin(self, address: Address) -> Address:
        """See `Reordered`."""
        return Address(address.epoch, self.start + address.number)


@dataclass(frozen=True, eq=False)
class Repeated(Reordered):
    """Several passes as one."""

    num_passes: int

    def count(self) -> int:
        """See `Elements`."""
        return self.num_passes * self.source.num_elements

    def origin(self, address: Address) -> Address:
        """See `Reordered`."""
        passes, number = divmod(address.number, self.source.num_elements)
        return Address(address.epoch * self.num_passes + passes, number)


@dataclass(frozen=True, eq=False)
class Batched(Elements):
    """Several elements in a row, stacked; the last batch may be smaller, or is left out."""

    source: Elements
    batch_size: int
    drops_remainder: bool

    def count(self) -> int:
        """See `Elements`."""
        whole, rest = divmod(self.source.num_elements, self.batch_size)
        return whole + (rest > 0 and not self.drops_remainder)

    def each(self, addresses: Iterable[Address]) -> Iterator[Any]:
        """See `Elements`."""
        return (self.source.block(self._records(address)) for address in addresses)

    def place(self, address: Address) -> str:
        """See `Elements`."""
        records = self._records(address)
        first, last = self.source.place(records[0]), self.source.place(records[-1])
        return f"batch {address.number} ({first} to {last})"

    def _records(self, address: Address) -> list[Address]:
        start = address.number * self.batch_size
        stop = min(start + self.batch_size, self.source.num_elements)
        return [Address(address.epoch, number) for number in range(start, stop)]


@dataclass(frozen=True, eq=False)
class Zipped(Elements):
    """Tuples of an element of each source, as many as the shortest has."""

    sources: tuple[Elements, ...]

    def count(self) -> int:
        """See `Elements`."""
        return min(source.num_elements for source in self.sources)

    def each(self, addresses: Iterable[Address]) -> Iterator[Any]:
        """See `Elements`."""
        asked = itertools.tee(addresses, len(self.sources))
        return zip(*(source.each(each) for source, each in zip(self.sources, asked, strict=True)), strict=True)

    def place(self, address: Address) -> str:
        """See `Elements`."""
        return " with ".join(dict.fromkeys(source.place(address) for source in self.sources))


@dataclass(frozen=True, eq=False)
class Concatenated(Elements):
    """The elements of one source, then those of another."""

    first: Elements
    second: Elements

    def count(self) -> int:
        """See `Elements`."""
        return self.first.num_elements + self.second.num_elements

    def each(self, addresses: Iterable[Address]) -> Iterator[Any]:
        """See `Elements`."""
        for is_first, some in itertools.groupby(addresses, lambda address: address.number < self.first.num_elements):
            source = self.first if is_first else self.second
            yield from source.each(address if is_first else self._in_second(address) for address in some)

    def place(self, address: Address) -> str:
        """See `Elements`."""
        if address.number < self.first.num_elements:
            return self.first.place(address)
        return f"{self.second.place(self._in_second(address))} of the second data set"

    def _in_second(self, address: Address) -> Address:
        return Address(address.epoch, address.number - self.first.num_elements)


@dataclass(frozen=True, eq=False)
class Enumerated(Elements):
    """Tuples of a number and an element."""

    source: Elements
    start: int

    def count(self) -> int:
        """See `Elements`."""
        return self.source.num_elements

    def each(self, addresses: Iterable[Address]) -> Iterator[Any]:
        """See `Elements`."""
        asked, read = itertools.tee(addresses)
        return ((np.int64(self.start + a.number), e) for a, e in zip(asked, self.source.each(read), strict=True))

    def place(self, address: Address) -> str:
        """See `Elements`."""
        return self.source.place(address)
