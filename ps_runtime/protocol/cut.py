"""A cut, as the chief's saver gets it from ps-0, hands it to every shard, and keeps it in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.protocol.decisions import Decision, Entry
from psflow.ps_runtime.protocol.message import Life

__all__ = ["Cut"]


@dataclass(frozen=True, slots=True)
class Cut:
    """What a cut holds of the job: the step, who pushed what, and where the input stands. No stop flags."""

    step: int
    lives: Mapping[Life, int]
    input: Mapping[str, Any]
    num_examples: int
    log_start: int = 0
    log: Sequence[Entry] = ()

    def to_facts(self) -> dict[str, Any]:
        """Return the cut as plain data."""
        return {
            "step": self.step,
            "lives": [[*life, sequence] for life, sequence in sorted(self.lives.items())],
            "input": dict(self.input),
            "num_examples": self.num_examples,
            "log": [self.log_start, *(list(entry) for entry in self.log)],
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Cut:
        """Read what `to_facts` wrote; ValueError where it cannot be."""
        try:
            lives = {(_whole(m), _whole(i)): _whole(sequence) for m, i, sequence in facts["lives"]}
            if not isinstance(facts["lives"], list) or not isinstance(facts["input"], Mapping):
                raise ValueError("expected a list of lives and the position of an input")
            start, *log = facts["log"]
            entries = [Entry(Decision(d), _whole(m), _whole(i), _whole(s)) for d, m, i, s in log]
            return cls(
                _whole(facts["step"]), lives, facts["input"], _whole(facts["num_examples"]), _whole(start), entries
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the facts of a cut: {error}") from error


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a whole number >= 0, got {value!r}")
    return value
