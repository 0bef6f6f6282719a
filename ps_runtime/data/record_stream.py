"""Streams of elements, such as those of a generator, which are unknown before they are read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from psflow.ps_runtime.data.interleaving import interleaved
from psflow.ps_runtime.data.nests import call_with, owned, stacked
from psflow.ps_runtime.data.ordered_map import ordered_map
from psflow.ps_runtime.data.transformations import (
    Transformations,
    check_at_least,
    check_callable,
    check_flag,
    check_other,
    check_seed,
    passes_of,
)
from psflow.ps_runtime.data.user_code import misfit
from psflow.ps_runtime.errors import InputError


@dataclass(frozen=True, eq=False)
class RecordStream(Transformations):
    """The result of `Dataset.from_generator`: an input_fn may return it once it is batched.

    One reader distributes its batches. Each reading calls the generator again.

    Examples
    --------
    >>> lines = RecordStream.of(lambda: ["1 2", "3 4", "5 6"]).map(lambda line: line.split())
    >>> list(lines.map(lambda pair: (int(pair[0]), int(pair[1]))).batch(2))
    [(array([1, 3]), array([2, 4])), (array([5]), array([6]))]
    """

    read: Callable[[int], Iterator[Any]]
    name: str
    is_batched: bool = False
    read_epoch: Callable[[int], Iterator[Any]] | None = None

    @classmethod
    def of(cls, generator: Callable[[], Iterable[Any]]) -> RecordStream:
        """Return the elements of the iterable that `generator` returns; it may reuse its arrays."""
        check_callable("from_generator", generator)
        if sentence := misfit(generator, 0):
            raise InputError((f"from_generator: {sentence}",))
        name = getattr(generator, "__qualname__", None) or repr(generator)

        def begun(epoch: int) -> Iterator[Any]:
            elements = generator()
            if not isinstance(elements, Iterable):
                got = type(elements).__name__
                raise InputError((f"from_generator: {name} returned {got}, expected an iterable of elements",))
            return map(owned, elements)

        return cls(begun, name)

    def map(self, function: Callable[..., Any], num_parallel_calls: int | None = None) -> RecordStream:  # noqa: D102
        check_callable("map", function)
        num_threads = 1 if num_parallel_calls is None else num_parallel_calls
        check_at_least("map", "num_parallel_calls", num_threads, 1)

        def made(numbered: tuple[int, Any]) -> Any:
            number, element = numbered
            return owned(call_with(function, element, lambda: self._place(number)))

        return self._then(lambda elements, _: ordered_map(made, enumerate(elements), num_threads))

    def filter(self, predicate: Callable[..., Any]) -> RecordStream:  # noqa: D102
        check_callable("filter", predicate)
        kept = self._then(lambda elements, _: (e for n, e in enumerate(elements) if self._is_kept(predicate, n, e)))
        return replace(kept, name=f"{self.name}, filtered")

    def batch(self, batch_size: int, drop_remainder: bool = False) -> RecordStream:  # noqa: D102
        check_at_least("batch", "batch_size", batch_size, 1)
        check_flag("batch", "drop_remainder", drop_remainder)
        name = f"{self.name}, in batches of {batch_size}"
        batches = self._then(lambda elements, _: self._batches(elements, batch_size, drop_remainder))
        return replace(batches, name=name, is_batched=True)

    def shuffle(  # noqa: D102
        self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool = True
    ) -> RecordStream:
        given = check_seed(buffer_size, seed, reshuffle_each_iteration)

        def mixed(elements: Iterator[Any], epoch: int) -> Iterator[Any]:
            random = np.random.default_rng([given, epoch if reshuffle_each_iteration else 0])
            return _mixed(elements, buffer_size, random)

        return replace(self._then(mixed), name=f"{self.name}, shuffled")

    def repeat(self, num_epochs: int | None = None) -> RecordStream:  # noqa: D102
        if num_epochs is not None:
            check_at_least("repeat", "num_epochs", num_epochs, 1)

        def repeated(epoch: int) -> Iterator[Any]:
            for each in passes_of(epoch, num_epochs):
                is_empty = True
                for element in self.read(each):
                    is_empty = False
                    yield element
                if is_empty:  # the next pass is empty, too
                    return

        is_left_out = num_epochs is None or self.is_batched
        read_epoch = self.read_epoch or (self.read if is_left_out else None)
        return replace(self, read=repeated, read_epoch=read_epoch, name=f"{self.name}, repeated")

    def take(self, count: int) -> RecordStream:  # noqa: D102
        check_at_least("take", "count", count, 0)
        return RecordStream(lambda epoch: itertools.islice(self.read(epoch), count), self.name, self.is_batched)

    def skip(self, count: int) -> RecordStream:  # noqa: D102
        check_at_least("skip", "count", count, 0)
        skipped = self._then(lambda elements, _: itertools.islice(elements, count, None))
        return replace(skipped, name=f"{self.name} without the first {count}")

    def concatenate(self, other: Transformations) -> RecordStream:  # noqa: D102
        check_other("concatenate", other)
        second = other.stream()
        return RecordStream(
            lambda epoch: itertools.chain(self.read(epoch), _late(second, epoch)),
            f"{self.name} and then {second.name}",
            self.is_batched and second.is_batched,
        )

    def enumerate(self, start: int = 0) -> RecordStream:  # noqa: D102
        check_at_least("enumerate", "start", start, 0)
        return self._then(lambda elements, _: ((np.int64(n), e) for n, e in enumerate(elements, start)))

    def interleave(  # noqa: D102
        self, function: Callable[..., Transformations], cycle_length: int, block_length: int = 1
    ) -> RecordStream:
        check_callable("interleave", function)
        check_at_least("interleave", "cycle_length", cycle_length, 1)
        check_at_least("interleave", "block_length", block_length, 1)

        def begun(numbered: tuple[int, Any], epoch: int) -> Iterator[Any]:
            number, element = numbered
            return self._made_data_set(function, number, element).stream().read(epoch)

        return RecordStream(
            lambda epoch: interleaved(
                map(partial(begun, epoch=epoch), enumerate(self.read(epoch))), cycle_length, block_length
            ),
            f"the interleaved elements of {self.name}",
        )

    def by_number(self) -> None:  # noqa: D102
        return None

    def stream(self) -> RecordStream:  # noqa: D102
        return self

    def one_epoch(self) -> RecordStream:  # noqa: D102
        return RecordStream(self.read_epoch or self.read, self.name, self.is_batched)

    @staticmethod
    def zipped(streams: tuple[RecordStream, ...]) -> RecordStream:
        """Return tuples of one element of each, up to the end of the shortest."""
        name = " with ".join(dict.fromkeys(stream.name for stream in streams))
        is_batched = all(stream.is_batched for stream in streams)
        once = [stream.read_epoch for stream in streams if stream.read_epoch is not None]
        read_epoch = _zipped(once) if len(once) == len(streams) else None
        return RecordStream(_zipped([stream.read for stream in streams]), name, is_batched, read_epoch)

    def _then(self, change: Callable[[Iterator[Any], int], Iterator[Any]]) -> RecordStream:
        def changed(read: Callable[[int], Iterator[Any]]) -> Callable[[int], Iterator[Any]]:
            return lambda epoch: change(read(epoch), epoch)

        read_epoch = None if self.read_epoch is None else changed(self.read_epoch)
        return replace(self, read=changed(self.read), read_epoch=read_epoch)

    def _place(self, number: int) -> str:
        what = "batch" if self.is_batched else "record"
        return f"{what} {number} of {self.name} (the first is 0)"

    def _is_kept(self, predicate: Callable[..., Any], number: int, element: Any) -> bool:
        kept = call_with(predicate, element, lambda: self._place(number))
        if np.shape(kept) or np.asarray(kept).dtype != np.bool_:
            raise InputError((f"the function of filter returned {kept!r} for {self._place(number)}: expected a bool",))
        return bool(kept)

    def _made_data_set(self, function: Callable[..., Any], number: int, element: Any) -> Transformations:
        made = call_with(function, element, lambda: self._place(number))
        if not isinstance(made, Transformations):
            what = f"the function of interleave returned {type(made).__name__} for {self._place(number)}"
            raise InputError((f"{what}: expected a Dataset",))
        return made

    def _batches(self, elements: Iterator[Any], batch_size: int, drops_remainder: bool) -> Iterator[Any]:
        first = 0
        what = "batches" if self.is_batched else "records"
        while held := list(itertools.islice(elements, batch_size)):
            if len(held) < batch_size and drops_remainder:
                return
            where = f"{what} {first} to {first + len(held) - 1} of {self.name} (the first is 0)"
            yield stacked(held, where)
            first += len(held)


def _zipped(readers: list[Callable[[int], Iterator[Any]]]) -> Callable[[int], Iterator[Any]]:
    return lambda epoch: zip(*(read(epoch) for read in readers), strict=False)


def _late(stream: RecordStream, epoch: int) -> Iterator[Any]:
    """Start to read a stream when its first element is requested."""
    yield from stream.read(epoch)


def _mixed(elements: Iterator[Any], buffer_size: int, random: np.random.Generator) -> Iterator[Any]:
    buffer = list(itertools.islice(elements, buffer_size))
    for element in elements:
        place = int(random.integers(buffer_size))
        yield buffer[place]
        buffer[place] = element
    yield from (buffer[place] for place in random.permutation(len(buffer)))
