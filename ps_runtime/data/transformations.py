"""Transformations of data sets, with the names and arguments of tf.data; the order of the calls counts."""

from __future__ import annotations

import itertools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from psflow.ps_runtime.data.splittable import is_int
from psflow.ps_runtime.errors import InputError

if TYPE_CHECKING:
    from psflow.ps_runtime.data.lazy_dataset import LazyDataset
    from psflow.ps_runtime.data.record_stream import RecordStream


class Transformations(ABC):
    """A data set of elements: records before `batch`, batches after it. Each method returns a new one.

    An element is an array, a dict of arrays, or a tuple of these, such as (features, labels).
    """

    @property
    @abstractmethod
    def is_batched(self) -> bool:
        """Whether elements are batches, which an input_fn may return."""

    def map(self, function: Callable[..., Any], num_parallel_calls: int | None = None) -> Transformations:
        """Return the data set with `function` applied to each element; the parts of a tuple are its arguments.

        Parameters
        ----------
        function : callable
            Called with records before `batch`, with batches after it.
        num_parallel_calls : int or None
            Threads that call it, >= 1; None: only the reading thread. Results stay in order.

        Raises
        ------
        InputError
            When it is read: for any error of `function`, with the record, the file and the line.
        """
        return self._computed().map(function, num_parallel_calls)

    @abstractmethod
    def batch(self, batch_size: int, drop_remainder: bool = False) -> Transformations:
        """Return the data set with `batch_size` elements in each batch, which is stacked along a new first axis.

        The last batch may be smaller, or is left out.
        """

    @abstractmethod
    def shuffle(
        self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool = True
    ) -> Transformations:
        """Return the data set in another order for each pass, the same in every process.

        Parameters
        ----------
        buffer_size : int
            Number of elements that are mixed with each other, >= 1.
        seed : int
            Determines the order, >= 0. It must be given.
        reshuffle_each_iteration : bool
            Whether each pass of a `repeat` has another order.
        """

    @abstractmethod
    def repeat(self, num_epochs: int | None = None) -> Transformations:
        """Return the data set read `num_epochs` times; None: forever."""

    def take(self, count: int) -> Transformations:
        """Return the first `count` elements, >= 0, or all if there are fewer."""
        return self._computed().take(count)

    def skip(self, count: int) -> Transformations:
        """Return the elements after the first `count`, >= 0."""
        return self._computed().skip(count)

    def concatenate(self, other: Transformations) -> Transformations:
        """Return the elements of this data set, then those of another."""
        return self._computed().concatenate(other)

    def enumerate(self, start: int = 0) -> Transformations:
        """Return tuples of a number, which counts from `start`, and an element."""
        return self._computed().enumerate(start)

    @abstractmethod
    def by_number(self) -> LazyDataset | None:
        """Return the elements by number, each computed when it is read; None if they have no numbers."""

    def _computed(self) -> LazyDataset:
        """Return the lazy form of a data set in memory; computed data sets override all methods."""
        lazy = self.by_number()
        assert lazy is not None, "a stream overrides all methods"
        return lazy

    def stream(self) -> RecordStream:
        """Return the elements as a stream, which one reader distributes."""
        return self._computed().stream()

    @abstractmethod
    def one_epoch(self) -> Transformations:
        """Return the data set as evaluation and prediction read it.

        It omits a ``repeat()`` that never ends, and one of batches, unless a `take`, `concatenate` or `interleave`
        follows it.
        """

    def filter(self, predicate: Callable[..., Any]) -> RecordStream:
        """Return a stream of the elements for which `predicate`, called like a function of `map`, returns True."""
        return self.stream().filter(predicate)

    def interleave(
        self, function: Callable[..., Transformations], cycle_length: int, block_length: int = 1
    ) -> RecordStream:
        """Return a stream of the elements of the data sets that `function` returns for the elements of this one.

        Parameters
        ----------
        function : callable
            Called like a function of `map`.
        cycle_length : int
            Data sets that are read in turn, >= 1.
        block_length : int
            Consecutive elements of each, >= 1.
        """
        return self.stream().interleave(function, cycle_length, block_length)

    def prefetch(self, buffer_size: int) -> Transformations:
        """Return the data set unchanged: psflow reads ahead by itself."""
        check_at_least("prefetch", "buffer_size", buffer_size, 1)
        return self

    def __iter__(self) -> Iterator[Any]:
        """Yield the elements."""
        return self.stream().read(0)


def passes_of(epoch: int, num_epochs: int | None) -> Iterable[int]:
    """Return the numbers of the passes that `repeat` joins to an epoch; without an end, all from that of the epoch."""
    return itertools.count(epoch) if num_epochs is None else range(epoch * num_epochs, (epoch + 1) * num_epochs)


def check_callable(method: str, function: object) -> None:
    """Refuse an argument that cannot be called."""
    if not callable(function):
        raise InputError((f"{method} expects a function, got {type(function).__name__}",))


def check_at_least(method: str, name: str, value: Any, minimum: int) -> None:
    """Refuse values that are not ints, or are too small or too large to count with."""
    if not is_int(value, minimum):
        raise InputError((f"{name} of {method} is {value!r}: expected an int >= {minimum}",))
    if value > sys.maxsize:
        raise InputError((f"{name} of {method} is {value}: expected an int <= {sys.maxsize}",))


def check_flag(method: str, name: str, value: object) -> None:
    """Refuse values that are not bools: any text, even "no", would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise InputError((f"{name} of {method} is {value!r}: expected True or False",))


def check_other(method: str, other: object) -> None:
    """Refuse an argument that is not a data set."""
    if not isinstance(other, Transformations):
        raise InputError((f"{method} expects a data set, such as Dataset.range(3), got {type(other).__name__}",))


def check_seed(buffer_size: object, seed: Any, reshuffle_each_iteration: object) -> int:
    """Return the seed of `shuffle`; InputError if it is missing, or another argument is invalid."""
    check_at_least("shuffle", "buffer_size", buffer_size, 1)
    if seed is None:
        raise InputError(
            (
                "shuffle has no seed: set one, because replicas and a resumed job must read the same order, such as "
                f"shuffle({buffer_size}, seed=1)",
            )
        )
    if not is_int(seed, 0):
        raise InputError((f"seed of shuffle is {seed!r}: expected an int >= 0",))
    check_flag("shuffle", "reshuffle_each_iteration", reshuffle_each_iteration)
    return int(seed)
