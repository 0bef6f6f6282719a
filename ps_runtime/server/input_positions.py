"""Where the replicas stand in the input: all in one queue of input splits, or each in a queue of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psflow.ps_runtime.server.input_position import InputPosition
from psflow.ps_runtime.specs.input import InputSpec

__all__ = ["InputPositions"]


class InputPositions:
    """The queues from which the replicas of a job are granted batches."""

    def __init__(self, spec: InputSpec, num_replicas: int) -> None:
        self.spec = spec
        self._positions = [InputPosition(spec) for _ in range(num_replicas if spec.each_worker_reads_all else 1)]
        self._left: set[int] = set()

    def of(self, replica: int) -> InputPosition:
        """Return the queue of `replica`, which may be that of all."""
        return self._positions[replica if self.spec.each_worker_reads_all else 0]

    def left(self, replica: int) -> None:
        """Take note that `replica` trains no more: what it would have read for itself is not waited for."""
        self._left.add(replica)

    def came(self, replica: int) -> None:
        """Take note that `replica` trains, maybe again."""
        self._left.discard(replica)

    def begin_again(self) -> None:
        """Read the input from its start, wherever it was left."""
        for position in self._positions:
            position.begin_again()

    def has_used_up_own(self, replica: int) -> bool:
        """Return whether `replica` has a queue of its own, and nothing is left in it."""
        return self.spec.each_worker_reads_all and self._positions[replica].is_exhausted

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to grant, unless a replica gives something back."""
        return all(
            position.is_exhausted or (self.spec.each_worker_reads_all and replica in self._left)
            for replica, position in enumerate(self._positions)
        )

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
        """Records that got lost; exact while no batch is under way."""
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

        They are new ones if the input was of another size, or was shared where now each replica reads all, or the other
        way round. Where each reads all, a replica that was not there begins at the start.

        Raises
        ------
        ValueError
            If `facts` are none.
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
