"""Elements that renumber those of a source."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.data.elements import ElementAddress, Elements
from psflow.ps_runtime.data.shuffle_order import shuffled_window


@dataclass(frozen=True, eq=False)
class Reordered(Elements):
    """Elements of `source` with other numbers."""

    source: Elements

    @abstractmethod
    def origin(self, address: ElementAddress) -> ElementAddress:
        """Return the address of an element in the source."""

    def each(self, addresses: Iterable[ElementAddress]) -> Iterator[Any]:
        """See `Elements`."""
        return self.source.each(map(self.origin, addresses))

    def block(self, addresses: Sequence[ElementAddress]) -> Any:
        """See `Elements`."""
        return self.source.block([self.origin(address) for address in addresses])

    def place(self, address: ElementAddress) -> str:
        """See `Elements`."""
        return self.source.place(self.origin(address))

    def is_row(self, first: ElementAddress, last: ElementAddress) -> bool:
        """See `Elements`."""
        first, last = self.origin(first), self.origin(last)
        return first.epoch == last.epoch and self.source.is_row(first, last)


@dataclass(frozen=True, eq=False)
class Shuffled(Reordered):
    """Windows of `buffer_size` elements, each shuffled by itself; passes differ, or all have the same order."""

    buffer_size: int
    seed: int
    reshuffles: bool

    def count(self) -> int:
        """See `Elements`."""
        return self.source.num_elements

    def origin(self, address: ElementAddress) -> ElementAddress:
        """See `Reordered`."""
        epoch, number = address
        window, place = divmod(number, self.buffer_size)
        order_of = epoch if self.reshuffles else 0
        order = shuffled_window(self.seed, order_of, self.num_elements, self.buffer_size, window)
        return ElementAddress(epoch, int(order[place]))

    def is_row(self, first: ElementAddress, last: ElementAddress) -> bool:
        """See `Elements`."""
        return first == last and super().is_row(first, last)


@dataclass(frozen=True, eq=False)
class ElementRange(Reordered):
    """The elements ``[start, stop)``, ``start <= stop``, of a pass."""

    start: int
    stop: int

    def count(self) -> int:
        """See `Elements`."""
        return self.stop - self.start

    def origin(self, address: ElementAddress) -> ElementAddress:
        """See `Reordered`."""
        return ElementAddress(address.epoch, self.start + address.number)


@dataclass(frozen=True, eq=False)
class Repeated(Reordered):
    """Several passes as one."""

    num_passes: int

    def count(self) -> int:
        """See `Elements`."""
        return self.num_passes * self.source.num_elements

    def origin(self, address: ElementAddress) -> ElementAddress:
        """See `Reordered`."""
        passes, number = divmod(address.number, self.source.num_elements)
        return ElementAddress(address.epoch * self.num_passes + passes, number)
