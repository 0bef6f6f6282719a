"""Assigns records to replicas by a queue of input splits, so that each record is used once per epoch."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from psflow.ps_runtime.specs.input import InputSpec, RecordRange


class Intervals:
    """A set of integers, kept as sorted, disjoint half-open intervals that do not touch each other.

    Notes
    -----
    Not thread-safe. `add` takes O(log n) steps and moves up to n intervals.

    Examples
    --------
    >>> seen = Intervals()
    >>> seen.add(0, 10), seen.add(20, 30), seen.add(5, 22)
    (0, 0, 7)
    >>> list(seen), seen.covered
    ([(0, 30)], 30)
    """

    __slots__ = ("_covered", "_starts", "_stops")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._covered = 0
        for start, stop in pairs:
            self.add(start, stop)

    @property
    def covered(self) -> int:
        """Number of integers in the set."""
        return self._covered

    def add(self, start: int, stop: int) -> int:
        """Add the integers of ``[start, stop)``; return how many of them the set held already.

        Raises ValueError if `stop` is less than `start`.
        """
        if stop < start:
            raise ValueError(f"expected start <= stop, got [{start}, {stop})")
        if start == stop:
            return 0
        # intervals [first, last) that overlap or touch the new one are merged with it
        first = bisect.bisect_left(self._stops, start)
        last = bisect.bisect_right(self._starts, stop)
        if last == first + 1 and self._stops[first] == start:  # sequential reading: nearly always so
            self._stops[first] = stop
            self._covered += stop - start
            return 0
        merged = range(first, last)
        already = sum(min(self._stops[i], stop) - max(self._starts[i], start) for i in merged)
        if merged:
            start_of_all, stop_of_all = min(start, self._starts[first]), max(stop, self._stops[last - 1])
        else:
            start_of_all, stop_of_all = start, stop
        self._starts[first:last] = [start_of_all]
        self._stops[first:last] = [stop_of_all]
        self._covered += stop - start - already
        return already

    def __contains__(self, number: int) -> bool:
        index = bisect.bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._stops[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._stops, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and self._starts == other._starts and self._stops == other._stops

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Intervals({list(self)})"


class InputPosition:
    """The queue of input splits.

    Each replica owns one open split at a time and is granted batches from it. The records that a replica leaves unused
    return to the queue and are granted first.
    """

    def __init__(self, spec: InputSpec) -> None:
        self.spec = spec
        self._first_epoch = 0
        self._epoch = 0
        self._next_record = 0
        self._returned: list[RecordRange] = []
        self._open: dict[int, RecordRange] = {}
        self._used: dict[int, Intervals] = {}
        self._num_records = spec.num_records
        self.epochs_completed = 0
        self.num_used = 0
        self.num_repeats = 0

    def take(self, replica: int) -> RecordRange | None:
        """Grant the next batch of `replica`; None if there is nothing to grant now."""
        split = self._open.pop(replica, None) or self._next_split()
        if split is None:
            return None
        stop = min(split.start + self.spec.batch_size, split.stop)
        if stop < split.stop:
            self._open[replica] = RecordRange(split.epoch, stop, split.stop)
        return RecordRange(split.epoch, split.start, stop)

    def commit(self, used: RecordRange) -> None:
        """Count a batch whose push is committed."""
        epoch = self._used.get(used.epoch)
        if epoch is None:
            epoch = self._used[used.epoch] = Intervals()
        self.num_repeats += epoch.add(used.start, used.stop)
        self.num_used += used.stop - used.start
        self._complete_epochs()

    def give_back(self, replica: int, granted: RecordRange | None) -> None:
        """Return the open split of `replica`, and the batch it was `granted` but did not use."""
        split = self._open.pop(replica, None)
        self._returned = self._within_the_end([*self._returned, *(rest for rest in (granted, split) if rest)])

    def put_back(self, replica: int, granted: RecordRange) -> None:
        """Return a batch whose use by `replica` had no effect; it is granted to the replica next."""
        split = self._open.pop(replica, None)
        if split is not None and (split.epoch, split.start) != (granted.epoch, granted.stop):
            self._returned = self._within_the_end([*self._returned, split])
            split = None
        whole = RecordRange(granted.epoch, granted.start, split.stop if split else granted.stop)
        for rest in self._within_the_end([whole]):
            self._open[replica] = rest

    def end_stream(self, num_records: int) -> None:
        """Record that a stream has ended after `num_records`. Repeats do nothing."""
        self._num_records = num_records
        self._returned = self._within_the_end(self._returned)
        self._open = {m: snapshot for m, split in self._open.items() for snapshot in self._within_the_end([split])}
        if self._more_to_carve and self._next_record >= num_records:
            self._epoch, self._next_record = self._epoch + 1, 0
        self._complete_epochs()

    def restart(self) -> None:
        """Read the input from its start, wherever it stopped, in as many new epochs as the spec says."""
        if self._next_record:
            self._epoch, self._next_record = self._epoch + 1, 0
        self._returned.clear()
        self._open.clear()
        self._used.clear()
        self._first_epoch = self.epochs_completed = self._epoch
        self._num_records = self.spec.num_records

    def was_used(self, batch: int) -> bool:
        """Return whether a batch of a stream is used, so that no replica may request it again."""
        used = self._used.get(self._first_epoch)
        return used is not None and batch in used

    def was_handed_out(self, batch: int) -> bool:
        """Return whether replicas may already request a batch of a stream; the first batch is always allowed."""
        return self._num_records is not None or batch < max(1, self._next_record)

    @property
    def num_misses(self) -> int:
        """Records of the epochs handed out whole that are neither used nor waiting; 0 unless records got lost.

        Exact while no batch is under way, as in a snapshot.
        """
        if self._num_records is None:
            return 0
        handed_out = self._num_records * (self._epoch - self.epochs_completed)
        used = sum(used.covered for epoch, used in self._used.items() if epoch < self._epoch)
        waiting = sum(r.stop - r.start for r in self._waiting() if r.epoch < self._epoch)
        return handed_out - used - waiting

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to grant, unless a replica returns something."""
        return not self._returned and not self._open and not self._more_to_carve

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain data; the unused part of each split counts as returned."""
        return {
            "num_records": self.spec.num_records,
            "rows_per_record": self.spec.rows_per_record,
            "stream_end": self._num_records if self.spec.is_stream else None,
            "first_epoch": self._first_epoch,
            "epoch": self._epoch,
            "next_record": self._next_record,
            "returned": [[r.epoch, r.start, r.stop] for r in self._waiting()],
            "used": {str(epoch): [list(pair) for pair in used] for epoch, used in self._used.items()},
            "epochs_completed": self.epochs_completed,
            "num_used": self.num_used,
            "num_repeats": self.num_repeats,
        }

    @classmethod
    def restored(cls, spec: InputSpec, facts: Mapping[str, Any]) -> InputPosition:
        """Return the position that `to_facts` described; a new one if the input had another size.

        Raises ValueError if `facts` are not those of an input position.
        """
        position = cls(spec)
        try:
            if (facts["num_records"], facts["rows_per_record"]) != spec.size:
                return position
            position._take_up(facts)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the facts of an input position: {error!r}") from error
        return position

    def _take_up(self, facts: Mapping[str, Any]) -> None:
        self._first_epoch = int(facts["first_epoch"])
        self._epoch = int(facts["epoch"])
        self._next_record = int(facts["next_record"])
        self._returned = [RecordRange(int(epoch), int(start), int(stop)) for epoch, start, stop in facts["returned"]]
        self._used = {int(epoch): Intervals((a, b) for a, b in pairs) for epoch, pairs in facts["used"].items()}
        self.epochs_completed = int(facts["epochs_completed"])
        self.num_used = int(facts["num_used"])
        self.num_repeats = int(facts["num_repeats"])
        if self.spec.is_stream and facts["stream_end"] is not None:
            self._num_records = int(facts["stream_end"])

    @property
    def _more_to_carve(self) -> bool:
        return self.spec.num_epochs is None or self._epoch < self._first_epoch + self.spec.num_epochs

    def _waiting(self) -> list[RecordRange]:
        return sorted([*self._returned, *self._open.values()])

    def _next_split(self) -> RecordRange | None:
        if self._returned:
            return self._returned.pop(0)
        if not self._more_to_carve:
            return None
        start = self._next_record
        stop = start + self.spec.batch_size * self.spec.split_batches
        if self._num_records is not None and stop >= self._num_records:
            split = RecordRange(self._epoch, start, self._num_records)
            self._epoch, self._next_record = self._epoch + 1, 0
            return split
        self._next_record = stop
        return RecordRange(self._epoch, start, stop)

    def _within_the_end(self, ranges: list[RecordRange]) -> list[RecordRange]:
        """Return `ranges` in order, without records beyond the end of a stream."""
        if not self.spec.is_stream or self._num_records is None:
            return sorted(ranges)
        end = self._num_records
        return sorted(RecordRange(r.epoch, r.start, min(r.stop, end)) for r in ranges if r.start < end)

    def _complete_epochs(self) -> None:
        """Drop the records of fully used epochs."""
        if self._num_records is None:
            return
        while (used := self._used.get(self.epochs_completed)) is not None and used.covered >= self._num_records:
            del self._used[self.epochs_completed]
            self.epochs_completed += 1


class InputPositions:
    """The queues from which the replicas of a job are granted batches."""

    def __init__(self, spec: InputSpec, num_replicas: int) -> None:
        self.spec = spec
        self._positions = [InputPosition(spec) for _ in range(num_replicas if spec.each_worker_reads_all else 1)]
        self._left: set[int] = set()

    def of(self, replica: int) -> InputPosition:
        """Return the queue of `replica`, which may be shared by all."""
        return self._positions[replica if self.spec.each_worker_reads_all else 0]

    def left(self, replica: int) -> None:
        """Record that `replica` trains no more: its own input is not waited for."""
        self._left.add(replica)

    def came(self, replica: int) -> None:
        """Record that `replica` trains, maybe again."""
        self._left.discard(replica)

    def restart(self) -> None:
        """Read the input from its start, wherever it stopped."""
        for position in self._positions:
            position.restart()

    def has_used_up_own(self, replica: int) -> bool:
        """Return whether `replica` has a queue of its own, and nothing is left in it."""
        return self.spec.each_worker_reads_all and self._positions[replica].is_exhausted

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to grant, unless a replica returns something."""
        if not self.spec.each_worker_reads_all:
            return self._positions[0].is_exhausted
        return all(position.is_exhausted or replica in self._left for replica, position in enumerate(self._positions))

    @property
    def epochs_completed(self) -> int:
        """Epochs of which every record is used: where each replica reads all, by each of them."""
        return min(position.epochs_completed for position in self._positions)

    @property
    def num_repeats(self) -> int:
        """Records that were used twice in an epoch of one queue."""
        return sum(position.num_repeats for position in self._positions)

    @property
    def num_misses(self) -> int:
        """Lost records; exact while no batch is under way."""
        return sum(position.num_misses for position in self._positions)

    def to_facts(self) -> dict[str, Any]:
        """Return the positions as plain data."""
        return {
            "each_worker_reads_all": self.spec.each_worker_reads_all,
            "positions": [position.to_facts() for position in self._positions],
        }

    @classmethod
    def restored(cls, spec: InputSpec, num_replicas: int, facts: Mapping[str, Any]) -> InputPositions:
        """Return the positions that `to_facts` described.

        They are new ones if the input had another size, or was shared where now each replica reads all, or vice versa.
        Where each reads all, a new replica begins at the start.

        Raises ValueError if `facts` are not those of an input position.
        """
        restored = cls(spec, num_replicas)
        try:
            known = list(facts["positions"])
            reads_all = facts["each_worker_reads_all"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the facts of an input position: {error!r}") from error
        if not known or type(reads_all) is not bool:
            raise ValueError(f"not the facts of an input position: {facts!r}")
        if reads_all is spec.each_worker_reads_all:
            for index, position in enumerate(known[: len(restored._positions)]):
                restored._positions[index] = InputPosition.restored(spec, position)
        return restored
