"""What was pushed, told plainly, and what a checkpoint has to hold by that: nothing here asks the code under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.protocol.job_state import Snapshot
from psflow.ps_runtime.protocol.message import Incarnation
from psflow.ps_runtime.specs.consistency import Consistency, Sync
from psflow.ps_runtime.specs.input import InputSpec, RecordRange
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

NUM_PUSHES = 2048
"""Most pushes of an example; each has a place of its own in each variable, and adds 1 to it."""
MODEL = ModelSpec(
    tuple(VariableSpec(name, (NUM_PUSHES,), "float32", 0) for name in ("even", "odd")),
    (GradientDescent(learning_rate=1.0).config(),),
)
ZEROS = {variable.name: np.zeros(variable.shape, variable.dtype) for variable in MODEL.variables}


@dataclass(frozen=True)
class Push:
    """One gradient: its place in the variables, who computed it in which life, and by which ticket."""

    place: int
    key: Incarnation
    step: int
    records: RecordRange

    def gradients(self) -> dict[str, NDArray[Any]]:
        """Return the gradients that count this push."""
        gradients = {name: zeros.copy() for name, zeros in ZEROS.items()}
        for gradient in gradients.values():
            gradient[self.place] = -1
        return gradients


@dataclass
class Lineage:
    """The pushes that led to the values of now, in the order in which ps-0 got them."""

    counted: list[Push] = field(default_factory=list)

    def copy(self) -> Lineage:
        return Lineage(list(self.counted))


@dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint: the arena of each shard, the facts of its snapshot, and what it has to hold."""

    arenas: tuple[NDArray[np.uint8], ...]
    variables: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]
    lineage: Lineage


def check(saved: Checkpoint, consistency: Consistency, spec: InputSpec) -> None:
    """Hold a checkpoint against what was pushed."""
    snapshot, counted = Snapshot.from_facts(saved.facts), saved.lineage.counted
    expected = np.zeros(NUM_PUSHES, np.float32)
    if isinstance(consistency, Sync):
        rounds = Counter(push.step for push in counted)
        assert sorted(rounds) == list(range(snapshot.step)), "one round for each step"
        for push in counted:
            expected[push.place] = np.float32(1) / np.float32(rounds[push.step])
    else:
        assert len(counted) == snapshot.step, "a push for each step"
        expected[[push.place for push in counted]] = 1
    for name, value in saved.variables.items():
        wrong = np.flatnonzero(value != expected)
        assert not len(wrong), (name, snapshot.step, {int(k): (float(value[k]), float(expected[k])) for k in wrong})
    _check_records(snapshot, counted, spec)


def _check_records(snapshot: Snapshot, counted: list[Push], spec: InputSpec) -> None:
    """Hold the input position against the records of the pushes that count."""
    assert snapshot.num_examples == sum(push.records.stop - push.records.start for push in counted)
    assert spec.num_records is not None
    for queue, facts in enumerate(snapshot.input["positions"]):
        pushes = [push for push in counted if not spec.each_worker_reads_all or push.key[0] == queue]
        used = Counter((p.records.epoch, r) for p in pushes for r in range(p.records.start, p.records.stop))
        assert set(used.values()) <= {1}, "a record that is used twice in an epoch"
        known = {(epoch, r) for epoch in range(facts["epochs_completed"]) for r in range(spec.num_records)}
        for epoch, pairs in facts["used"].items():
            known |= {(int(epoch), r) for start, stop in pairs for r in range(start, stop)}
        assert known == set(used), "the input position differs from what the pushes have used"
        assert facts["num_repeats"] == 0
