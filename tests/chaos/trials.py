"""What a trial is made of: whom a fault hits, in which phase of a job, how, and in which configuration."""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from psflow.ps_runtime.specs.roles import Role, RoleId

NUM_WORKERS = 2


class Target(Enum):
    """What a fault hits: processes of roles, a process around them, or the disk of the model_dir."""

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
    NANNY = "nanny"
    """Of worker-0: its Dask worker ends with it, and nobody starts another one in its place."""
    SCHEDULER = "scheduler"
    FLOW = "flow"
    """The owner of the job."""
    DISK = "disk"
    """Of the model_dir."""
    MLFLOW = "mlflow"
    """The server that ``psflow train`` reports to; one that is gone comes back."""
    PREFECT = "prefect"
    """The server that ``psflow train`` has for itself; only the same command starts another one."""

    @property
    def roles(self) -> tuple[RoleId, ...]:
        """Those that lose their processes when the target does."""
        if self is Target.NANNY:
            return (RoleId.parse("worker-0"),)
        return () if self.is_around else tuple(RoleId.parse(name) for name in self.value)

    @property
    def is_around(self) -> bool:
        """Whether it is something else than the process of a role."""
        return isinstance(self.value, str)

    @property
    def is_server(self) -> bool:
        """Whether ``psflow train`` alone has it: another job knows neither MLflow nor Prefect."""
        return self in (Target.MLFLOW, Target.PREFECT)


class Phase(Enum):
    """What the job is in the middle of; whoever does it waits at a gate until the fault has happened."""

    START = "start"
    """The chief builds the model; no variable has a value yet."""
    IDLE = "idle"
    """All replicas are between two steps."""
    PULL = "pull"
    """A replica has asked for variables, and has read none of them."""
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
    """What happens to the target."""

    KILL = "SIGKILL"
    TERM = "SIGTERM"
    """Which the workers of a local cluster ignore: their owner ends them."""
    STOP = "SIGSTOP for 2 s"
    """Too long for a worker that others wait for, and for nobody else."""
    LONG_STOP = "SIGSTOP for 20 s"
    DISCONNECT = "connection cut"
    """All connections of the roles with ps break, in the middle of a message if one is under way."""
    REPEAT = "repeated message"
    """The next answer that a role gets from a ps is lost on the way, and the role says the same once more."""
    DELAY = "delayed message"
    """The next message of a role comes late, by a connection that broke, after it came by a new one."""
    FULL_DISK = "no space left"
    READ_ONLY_DISK = "read-only"


SIGNALS = {
    Fault.KILL: signal.SIGKILL,
    Fault.TERM: signal.SIGTERM,
    Fault.STOP: signal.SIGSTOP,
    Fault.LONG_STOP: signal.SIGSTOP,
}
"""What processes are sent."""
STOPPED_SECS = {Fault.STOP: 2.0, Fault.LONG_STOP: 20.0}
"""How long SIGCONT is in coming."""
DISK_ERRORS = {Fault.FULL_DISK: "No space left on device", Fault.READ_ONLY_DISK: "Read-only file system"}
"""What a job has to say that ends with such a disk."""
MESSAGE_FAULTS = (Fault.REPEAT, Fault.DELAY)


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


class Transport(Enum):
    """How replicas reach the ps."""

    SHARED_MEMORY = "shm"
    TCP = "tcp"


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
    transport: Transport

    @property
    def is_possible(self) -> bool:
        """Whether there can be such a job, and such a fault of this target in this phase."""
        has_target = RoleId.parse("ps-1") not in self.target.roles or self.num_ps == 2
        has_update = not (self.update is Update.SYNC and self.pipeline_depth == 1)
        has_phase = not (self.target.is_server and self.phase is Phase.EXPORT)  # MLflow writes it, and has no gate
        # at the finish a worker waits for its last answer, and the evaluator has been told all
        has_message = self.fault not in MESSAGE_FAULTS or self.phase is not Phase.FINISH or self.target is Target.CHIEF
        return has_target and has_update and has_phase and has_message and self.fault in self._faults

    @property
    def _faults(self) -> Collection[Fault]:
        """Those that its target can have."""
        if self.target is Target.DISK:
            return DISK_ERRORS
        if self.target.is_around:
            return SIGNALS
        of_roles = (*SIGNALS, Fault.DISCONNECT)  # a ps says nothing but answers: if late, it was stopped
        has_ps = any(role.role is Role.PS for role in self.target.roles)
        return of_roles if has_ps else (*of_roles, *MESSAGE_FAULTS)

    @property
    def num_workers(self) -> int:
        """Beside the chief; none where each point of the chief's curves is expected, at steps that are known before."""
        return 0 if self.target.is_server else NUM_WORKERS

    @property
    def loses_roles(self) -> bool:
        """Whether roles are lost and restart."""
        is_gone = self.fault is Fault.KILL or (self.target is Target.NANNY and self.fault is Fault.TERM)
        return is_gone and bool(self.target.roles)

    @property
    def ends_job(self) -> bool:
        """Whether the job ends, and the same command goes on with it."""
        is_gone = self.target in (Target.SCHEDULER, Target.FLOW) and self.fault not in STOPPED_SECS
        return is_gone or self.target is Target.DISK

    @property
    def rolls_back(self) -> bool:
        """Whether training goes back to the last checkpoint once the roles are lost."""
        hit = {role.role for role in self.target.roles}
        return Role.PS in hit or (Role.CHIEF in hit and self.phase is Phase.START)

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
    "transport": tuple(Transport),
}


def trial_of(names: Mapping[str, str]) -> Trial:
    """Return a trial by what reports call the value of each axis."""
    return Trial(
        **{axis: next(value for value in known if name_of(value) == names[axis]) for axis, known in AXES.items()}
    )


def name_of(value: Any) -> str:
    """Return what reports call a value of an axis."""
    return value.name.lower() if isinstance(value, Enum) else str(value)
