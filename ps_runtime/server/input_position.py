"""Who reads which records: one queue of input splits, so that each record is used once per epoch over all workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ps_runtime.data.positions import Intervals
from ps_runtime.specs.input import InputSpec

__all__ = ["InputPosition", "RecordRange"]


@dataclass(frozen=True, slots=True, order=True)
class RecordRange:
    """Records ``[start, stop)`` of the order of an epoch."""

    epoch: int
    start: int
    stop: int


class InputPosition:
    """The queue of input splits.

    Each member owns one open split at a time and is granted batches from it. What a member leaves behind returns to
    the queue and is granted first.
    """

    def __init__(self, spec: InputSpec) -> None:
        self.spec = spec
        self._epoch = 0
        self._next_record = 0
        self._returned: list[RecordRange] = []
        self._open: dict[int, RecordRange] = {}
        self._used: dict[int, Intervals] = {}
        self._num_records = spec.num_records
        self.epochs_completed = 0
        self.num_used = 0
        self.num_repeats = 0

    def take(self, member: int) -> RecordRange | None:
        """Grant the next batch of `member`; None if there is nothing to grant now."""
        split = self._open.pop(member, None) or self._next_split()
        if split is None:
            return None
        stop = min(split.start + self.spec.batch_size, split.stop)
        if stop < split.stop:
            self._open[member] = RecordRange(split.epoch, stop, split.stop)
        return RecordRange(split.epoch, split.start, stop)

    def split_stop(self, member: int, granted: RecordRange) -> int:
        """Return the end of the split that `granted` is from: how far `member` may read ahead."""
        split = self._open.get(member)
        return granted.stop if split is None else split.stop

    def commit(self, used: RecordRange) -> None:
        """Count a batch whose push is committed."""
        epoch = self._used.setdefault(used.epoch, Intervals())
        self.num_repeats += epoch.add(used.start, used.stop)
        self.num_used += used.stop - used.start
        self._complete_epochs()

    def give_back(self, member: int, granted: RecordRange | None) -> None:
        """Return the open split of `member`, and the batch it was `granted` but did not use."""
        split = self._open.pop(member, None)
        for rest in (granted, split):
            if rest is not None and not self._is_past_the_end(rest):
                self._returned.append(rest)
        self._returned.sort()

    def end_stream(self, num_records: int) -> None:
        """Take note that a stream has ended after `num_records`."""
        self._num_records = num_records
        self._open.clear()
        self._returned = [r for r in self._returned if not self._is_past_the_end(r)]
        self._epoch, self._next_record = 1, 0
        self._complete_epochs()

    def was_used(self, batch: int) -> bool:
        """Return whether a batch of a stream is used, so that nobody will ask for it again."""
        used = self._used.get(0)
        return used is not None and batch in used

    @property
    def num_misses(self) -> int:
        """Records of the epochs handed out whole that are neither used nor waiting; 0 unless records got lost.

        Exact while no batch is under way, as at a cut.
        """
        if self._num_records is None:
            return 0
        waiting = [*self._returned, *self._open.values()]
        handed_out = sum(self._num_records - used.covered for epoch, used in self._used.items() if epoch < self._epoch)
        return handed_out - sum(r.stop - r.start for r in waiting if r.epoch < self._epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to grant, unless a member gives something back."""
        return not self._returned and not self._open and not self._more_to_carve

    def to_facts(self) -> dict[str, Any]:
        """Return the position as plain data: what is not used yet of each split counts as returned."""
        return {
            "epoch": self._epoch,
            "next_record": self._next_record,
            "num_records": self._num_records,
            "returned": [[r.epoch, r.start, r.stop] for r in sorted([*self._returned, *self._open.values()])],
            "used": {str(epoch): [list(pair) for pair in used] for epoch, used in self._used.items()},
            "epochs_completed": self.epochs_completed,
            "num_used": self.num_used,
            "num_repeats": self.num_repeats,
        }

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Take up the position that `to_facts` described."""
        self._epoch = facts["epoch"]
        self._next_record = facts["next_record"]
        self._returned = [RecordRange(*r) for r in facts["returned"]]
        self._open = {}
        self._used = {int(epoch): Intervals((start, stop) for start, stop in used) for epoch, used in facts["used"].items()}
        self.epochs_completed = facts["epochs_completed"]
        self.num_used = facts["num_used"]
        self.num_repeats = facts["num_repeats"]

    @property
    def _more_to_carve(self) -> bool:
        return self.spec.num_epochs is None or self._epoch < self.spec.num_epochs

    def _next_split(self) -> RecordRange | None:
        if self._returned:
            return self._returned.pop(0)
        if not self._more_to_carve:
            return None
        start = self._next_record
        stop = start + self.spec.batch_size * self.spec.split_batches
        if self._num_records is not None and stop >= self._num_records:
            stop = self._num_records
            split = RecordRange(self._epoch, start, stop)
            self._epoch, self._next_record = self._epoch + 1, 0
            return split
        self._next_record = stop
        return RecordRange(self._epoch, start, stop)

    def _is_past_the_end(self, records: RecordRange) -> bool:
        return self.spec.is_stream and self._num_records is not None and records.start >= self._num_records

    def _complete_epochs(self) -> None:
        """An epoch is complete once all of it was handed out and nothing of it is open, returned or under way."""
        if self._num_records is None:
            return
        while (used := self._used.get(self.epochs_completed)) is not None and used.covered >= self._num_records:
            del self._used[self.epochs_completed]
            self.epochs_completed += 1
