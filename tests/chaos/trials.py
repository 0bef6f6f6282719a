"""What a trial is made of: whom a fault hits, in which phase of a job, how, and in which configuration."""

from __future__ import annotations

import signal
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from psflow.ps_runtime.specs.roles import Role, RoleId

NUM_WORKERS = 2


class Target(Enum):
    """The roles that a fault hits."""

    WORKER_0 = ("worker-0",)
    WORKER_1 = ("worker-1",)
    EVALUATOR = ("evaluator-0",)
    TWO_WORKERS = ("worker-0", "worker-1")
    WORKER_AND_EVALUATOR = ("worker-1", "evaluator-0")
    CHIEF = ("chief-0",)
    PS_0 = ("ps-0",)
    PS_1 = ("ps-1",)
    PS_AND_WORKER = ("ps-0", "worker-0")
    PS_AND_CHIEF = ("ps-1", "chief-0")

    @property
    def roles(self) -> tuple[RoleId, ...]:
        return tuple(RoleId.parse(name) for name in self.value)

    @property
    def goes_back(self) -> bool:
        """Whether no training goes on without these roles, so that it goes back to the last checkpoint."""
        return any(role.role in (Role.PS, Role.CHIEF) for role in self.roles)


class Phase(Enum):
    """What the job is in the middle of; whoever does it waits at a gate until the fault has happened."""

    START = "start"
    """The chief builds the model; no variable has a value yet."""
    TRAINING = "training"
    """A replica computes a gradient."""
    PUSH = "push"
    """The other ps hold a gradient of which ps-0 has not heard."""
    ANSWER = "answer"
    """ps-0 has got a gradient, and the replica has not read the answer."""
    CUT = "cut"
    """All replicas have stopped for a checkpoint; nothing of it is copied yet."""
    COMMIT = "commit"
    """All files of a checkpoint are written, but its manifest is not."""
    EVALUATION = "evaluation"
    """The evaluator evaluates a checkpoint."""
    EXPORT = "export"
    """The evaluator exports the best model so far."""
    FINISH = "finish"
    """As COMMIT, of the final checkpoint."""


class Fault(Enum):
    """What happens to the processes of the roles."""

    KILL = signal.SIGKILL
    TERM = signal.SIGTERM
    """Which the workers of a local cluster ignore: their owner ends them."""
    STOP = signal.SIGSTOP
    """Followed by SIGCONT after some seconds."""


class Update(Enum):
    """How gradients become updates."""

    ASYNC = "async"
    SYNC = "sync"
    BOUNDED_STALENESS = "bounded_staleness"


class Parameters(Enum):
    """What the model has to count its updates with."""

    DENSE = "dense"
    ROWS = "rows"


class Input(Enum):
    """How the replicas come by their batches."""

    DEALT = "dealt"
    EACH_READS_ALL = "each_worker_reads_all"
    GENERATOR = "generator"


@dataclass(frozen=True, slots=True)
class Trial:
    """One job, and one fault in it. Each field is an axis of the schedule; `AXES` has their values."""

    target: Target
    phase: Phase
    fault: Fault
    update: Update
    num_ps: int
    parameters: Parameters
    pipeline_depth: int
    input: Input

    @property
    def is_possible(self) -> bool:
        """Whether there can be such a job."""
        has_target = "ps-1" not in self.target.value or self.num_ps == 2
        return has_target and not (self.update is Update.SYNC and self.pipeline_depth == 1)

    @property
    def loses_roles(self) -> bool:
        """Whether roles are lost and begin again."""
        return self.fault is Fault.KILL

    def __str__(self) -> str:
        return ", ".join(f"{field.name}={name_of(getattr(self, field.name))}" for field in fields(self))


AXES: dict[str, tuple[Any, ...]] = {
    "target": tuple(Target),
    "phase": tuple(Phase),
    "fault": tuple(Fault),
    "update": tuple(Update),
    "num_ps": (1, 2),
    "parameters": tuple(Parameters),
    "pipeline_depth": (0, 1),
    "input": tuple(Input),
}


def name_of(value: Any) -> str:
    """Return what reports call a value of an axis."""
    return value.name.lower() if isinstance(value, Enum) else str(value)
