"""Records one by one, as a generator gives them, made into batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from psflow.ps_runtime.data.splittable import is_int
from psflow.ps_runtime.errors import InputError

__all__ = ["RecordStream"]


@dataclass(frozen=True)
class RecordStream:
    """What `Dataset.from_generator` returns: an input_fn may return it once it has a `batch` size.

    One reader deals its batches out, as those of any generator. Each reading of it calls `generator` again.

    Parameters
    ----------
    generator : callable
        Returns an iterable of records, in order.
    functions : tuple of callable
        Applied to each record, one after the other.
    batch_size : int or None
        Records of a batch, >= 1; the last one may be smaller. None: it is not known yet.

    Raises
    ------
    InputError
        If an argument is none of these.

    Examples
    --------
    >>> lines = RecordStream(lambda: ["1 2", "3 4", "5 6"]).map(lambda line: [int(word) for word in line.split()])
    >>> list(lines.map(lambda words: ({"x": words[0]}, words[1])).batch(2))
    [({'x': array([1, 3])}, array([2, 4])), ({'x': array([5])}, array([6]))]
    """

    generator: Callable[[], Iterable[Any]]
    functions: tuple[Callable[..., Any], ...] = ()
    batch_size: int | None = None

    def __post_init__(self) -> None:
        faults = [
            f"{what} should be callable, got {type(given).__name__}"
            for what, given in (("generator", self.generator), *(("a function of map", f) for f in self.functions))
            if not callable(given)
        ]
        if self.batch_size is not None and not is_int(self.batch_size, 1):
            faults.append(f"batch_size is {self.batch_size!r}: expected an int >= 1")
        if faults:
            raise InputError(tuple(faults))

    def map(self, function: Callable[..., Any]) -> RecordStream:
        """Return the stream with `function` applied to each record; the parts of a tuple are its arguments."""
        if self.batch_size is not None:
            raise InputError(("map comes before batch: it is applied to records, not to batches",))
        return replace(self, functions=(*self.functions, function))

    def batch(self, batch_size: int) -> RecordStream:
        """Return the stream with batches of `batch_size` records."""
        return replace(self, batch_size=batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Yield batches: features, or tuples (features, labels), with rows on axis 0."""
        if self.batch_size is None:
            raise InputError(("a Dataset.from_generator has no batch size; call its batch(batch_size)",))
        records, first = self._records(), 0
        while held := list(itertools.islice(records, self.batch_size)):
            yield _stacked(held, f"records {first} to {first + len(held) - 1} of {self._name} (the first is 0)")
            first += len(held)

    @property
    def _name(self) -> str:
        return getattr(self.generator, "__qualname__", None) or repr(self.generator)

    def _records(self) -> Iterator[Any]:
        for number, record in enumerate(self.generator()):
            try:
                made = self._made(record)
            except StopIteration:  # which whoever reads would take for the end of the data
                what = "a function of map raised StopIteration; give its next() a default"
                raise InputError((f"record {number} of {self._name} (the first is 0): {what}",)) from None
            yield made

    def _made(self, record: Any) -> Any:
        for function in self.functions:
            record = function(*record) if isinstance(record, tuple) else function(record)
        return record


def _stacked(records: list[Any], where: str) -> Any:
    """Return records as one batch: of tuples a tuple, of mappings a dict, of anything else an array."""
    head = records[0]
    if isinstance(head, tuple):
        if any(not isinstance(record, tuple) or len(record) != len(head) for record in records):
            raise InputError((f"{where}: expected tuples of {len(head)}, as the first of them is",))
        return tuple(_stacked([record[i] for record in records], where) for i in range(len(head)))
    if isinstance(head, Mapping):
        if any(not isinstance(record, Mapping) or record.keys() != head.keys() for record in records):
            raise InputError((f"{where}: expected features {', '.join(head)} in each, as the first of them has",))
        return {name: _stacked([record[name] for record in records], where) for name in head}
    arrays = [np.asarray(record) for record in records]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise InputError((f"{where}: expected values of one shape, got {' and '.join(map(str, sorted(shapes)))}",))
    return np.stack(arrays)
