"""Defines every error that psflow raises on purpose.

::

    PsflowError
    ├── UsageError               the request is invalid (ValueError); found before the flow starts, raised unchanged
    │   ├── ArgumentTypeError    an argument of another type than expected (TypeError)
    │   ├── NoClusterError       a role needs a cluster, but TF_CONFIG has none (RuntimeError)
    │   ├── ConfigError          a configuration file, flag or environment variable
    │   ├── ModelFnError         a model_fn, or its result
    │   │   └── ModelFnTypeError a part of its result is of another type than expected (TypeError)
    │   ├── InputError           an input_fn, a data file, a row of it
    │   │   ├── CellError        a value of one column in one row
    │   │   └── LabelError       a label that the model cannot learn
    │   ├── ModelDirError        a model_dir of another model, or of a job that is alive
    │   └── CapacityError        more roles than the cluster has slots
    ├── ClusterError             a Dask cluster of our own that does not come up
    ├── CheckpointError          a checkpoint that is torn, missing or not ours
    │   └── NoCheckpointError    there is no checkpoint to read (ValueError)
    ├── StorageError             something could not be written: a full disk, a missing permission
    │   ├── LostDirectoryError   its directory is gone, or another host's
    │   └── StoreError           a remote store refused a request, or did not answer
    ├── TransportError
    │   ├── ProtocolError        the peer broke the protocol
    │   ├── RefusedError         the peer understood the request and refused it
    │   │   └── IncarnationOverError    the others go on without this incarnation
    │   ├── ClosedError          this process closed the connection or server
    │   └── BrokenPeerError      the peer ended the connection, or cannot be reached
    ├── WaitTimeoutError         a wait timed out
    ├── StoppedError             a role was stopped
    │   └── InterruptedLoopError by a signal to the process of its loop
    ├── FlowFailedError          the request is invalid; found after the flow had started
    ├── RoleFailedError          a role ended with an error
    ├── EvaluationFailedError    checkpoints could not be evaluated
    ├── NoBestError              no evaluation has finite metrics to choose the best by
    ├── NanLossError             the loss is not a number (RuntimeError)
    └── NanGradientError         the loss is a number, a gradient is not (RuntimeError)

The Python error in parentheses is a base, too: programs written for the Estimator catch the same errors here.
Facts are fields and the sentence is ``__str__``, without credentials. Every class survives pickling, facts included.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from psflow.ps_runtime.redaction import public_sentence, without_secrets


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name nearest to `name` in any case, or an empty string.

    `cutoff` is the least similarity, in [0, 1].

    Examples
    --------
    >>> did_you_mean("MAX_STEP", ["max_steps", "model_dir"])
    "; did you mean 'max_steps'?"
    """
    near = difflib.get_close_matches(name.lower(), by_lower := {one.lower(): one for one in known}, 1, cutoff)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


@dataclass(eq=False)
class PsflowError(Exception):
    """Base of all errors of psflow."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Leave credentials out of the sentence, whatever facts it is made of."""
        super().__init_subclass__(**options)
        if "__str__" in vars(cls):
            cls.__str__ = public_sentence(cls.__str__)  # type: ignore[method-assign]

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **{f.name: getattr(self, f.name) for f in fields(self) if f.init}), ()

    def __str__(self) -> str:
        return without_secrets(", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self)))


@dataclass(eq=False)
class UsageError(PsflowError, ValueError):
    """The request is invalid, found before the flow starts; `faults` holds one sentence for each fault."""

    faults: tuple[str, ...]

    def __post_init__(self) -> None:
        self.faults = (self.faults,) if isinstance(self.faults, str) else tuple(self.faults)

    def __str__(self) -> str:
        return "\n".join(self.faults)


class ArgumentTypeError(UsageError, TypeError):
    """An argument has another type than expected; `faults` may hold further faults of the same call."""


class NoClusterError(UsageError, RuntimeError):
    """A process should run a role of a cluster, but TF_CONFIG has no cluster."""


class ConfigError(UsageError):
    """A configuration file, a flag or an environment variable is wrong."""


class ModelFnError(UsageError):
    """A model_fn, or its result, is wrong."""


class ModelFnTypeError(ModelFnError, ArgumentTypeError):
    """The result of a model_fn, or a part of it, has another type than expected."""


class InputError(UsageError):
    """An input_fn, a data file or a row of it is wrong."""


@dataclass(eq=False)
class CellError(InputError):
    """A value of a column is wrong; `row` counts from 0, in the data of the caller."""

    faults: tuple[str, ...] = field(init=False)
    column: str
    row: int
    reason: str

    def __post_init__(self) -> None:
        self.faults = (f"column {self.column!r}, row {self.row} (counted from 0): {self.reason}",)


@dataclass(eq=False)
class LabelError(InputError):
    """The model cannot learn the label of `row`, which counts from 0 in the data of the caller."""

    faults: tuple[str, ...] = field(init=False)
    row: int
    where: str
    reason: str

    def __post_init__(self) -> None:
        self.faults = (f"the label of row {self.row} of {self.where} {self.reason}",)


class ModelDirError(UsageError):
    """A model_dir belongs to another model, or to a job that is alive."""


@dataclass(eq=False)
class CapacityError(UsageError):
    """The cluster has fewer free slots than the job has roles."""

    faults: tuple[str, ...] = field(init=False)
    num_roles: int
    num_slots: int
    where: str

    def __post_init__(self) -> None:
        self.faults = (
            f"the job has {self.num_roles} roles, but {self.where} has {self.num_slots} free slots; "
            "start more Dask workers, or ask for fewer roles (cluster.ps, cluster.workers)",
        )


@dataclass(eq=False)
class ClusterError(PsflowError):
    """A Dask cluster on this machine does not come up."""

    num_workers: int
    reason: str

    def __str__(self) -> str:
        return (
            f"a Dask cluster of {self.num_workers} workers did not start on this machine: {self.reason}; "
            "check that this machine has enough memory, then run the same command again"
        )


@dataclass(eq=False)
class CheckpointError(PsflowError):
    """A checkpoint cannot be read: missing, torn, changed, or of another model."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"checkpoint {self.path}: {self.reason}"


class NoCheckpointError(CheckpointError, ValueError):
    """There is no checkpoint to read."""


@dataclass(eq=False)
class StorageError(PsflowError):
    """A file could not be written; its former content is unchanged."""

    path: str
    reason: str
    free_bytes: int = 0

    def __str__(self) -> str:
        what = f"{self.path} could not be written: {self.reason} ({self.free_bytes / 1e6:.1f} MB are free)"
        return f"{what}; free some space, or correct the permissions of {self.path}, then run the same command again"


class LostDirectoryError(StorageError):
    """The directory of a model_dir or an output is gone, or this process sees another one; it is not recreated."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class StoreError(StorageError):
    """A remote store refused a request, or did not answer."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}, then run the same command again"


class TransportError(PsflowError):
    """The communication between two roles failed."""


@dataclass(eq=False)
class ProtocolError(TransportError):
    """The peer broke the protocol; the connection is closed and nothing was changed."""

    peer: str
    reason: str

    def __str__(self) -> str:
        return f"{self.peer} broke the protocol: {self.reason}"


@dataclass(eq=False)
class RefusedError(TransportError):
    """The peer understood the request and refused it. `code` is for programs, `reason` for the user."""

    peer: str
    code: str
    reason: str

    def __str__(self) -> str:
        return f"{self.peer} refused: {self.reason}"


class IncarnationOverError(RefusedError):
    """The others go on without this incarnation of the role, which was silent for too long or has a later one."""


@dataclass(eq=False)
class ClosedError(TransportError):
    """The connection or server was closed by this process itself."""

    what: str

    def __str__(self) -> str:
        return f"{self.what} is closed"


@dataclass(eq=False)
class BrokenPeerError(TransportError):
    """The peer ended the connection, or cannot be reached. The cause is set where there is one."""

    peer: str
    reason: str

    def __str__(self) -> str:
        return f"no connection to {self.peer}: {self.reason}"


@dataclass(eq=False)
class WaitTimeoutError(PsflowError):
    """`subject` did not do `action` in time; `detail` holds an observation, or the remedy."""

    subject: str
    action: str
    timeout_secs: float
    detail: str = ""

    def __str__(self) -> str:
        sentence = f"{self.subject} did not {self.action} within {self.timeout_secs:g} s"
        return f"{sentence}: {self.detail}" if self.detail else sentence


@dataclass(eq=False)
class StoppedError(PsflowError):
    """A role was stopped before its work was done."""

    role: str
    reason: str

    def __str__(self) -> str:
        return f"{self.role} was stopped: {self.reason}"


class InterruptedLoopError(StoppedError):
    """A signal has interrupted the user's training loop, and the process of the role ends."""


@dataclass(eq=False)
class FlowFailedError(PsflowError):
    """The request is invalid, found after the flow had started; before that, UsageError is raised unchanged."""

    faults: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.faults)


@dataclass(eq=False)
class RoleFailedError(PsflowError):
    """A role ended with an error; the first one of a job is its root cause."""

    role: str
    error: str

    def __str__(self) -> str:
        return f"{self.role} failed: {self.error}"


class RoleLostError(RoleFailedError):
    """The process of a role is gone: no code of the role has failed, and a new incarnation may continue."""


@dataclass(eq=False)
class EvaluationFailedError(PsflowError):
    """Some checkpoints could not be evaluated, one sentence for each; `facts` cover all requested checkpoints."""

    faults: tuple[str, ...]
    facts: dict[str, Any]

    def __str__(self) -> str:
        return "\n".join(self.faults)


@dataclass(eq=False)
class NoBestError(PsflowError):
    """No evaluation has finite values of the deciding metrics, so no checkpoint is the best.

    `metrics` are the non-finite ones of the last evaluation; `cell` is the first non-finite value of its input.
    """

    evaluation: str
    metrics: dict[str, float]
    num_evaluations: int
    cell: str = ""

    def __str__(self) -> str:
        values = ", ".join(f"{name} is {value}" for name, value in self.metrics.items())
        why = (
            f"its data has a missing, NaN or infinite value in {self.cell}; correct it, or set non_finite of this "
            "input to drop, then measure the checkpoints again (psflow evaluate --force) and choose the best one "
            "(psflow export --metric)"
            if self.cell
            else "no missing, NaN or infinite value was seen in its data; look at model_fn and at the learning rate"
        )
        return (
            f"none of {self.num_evaluations} evaluations as {self.evaluation!r} has a finite result ({values}), so no "
            f"checkpoint is the best and none was exported as such; training is saved: {why}"
        )


@dataclass(eq=False)
class NanLossError(PsflowError, RuntimeError):
    """The loss is NaN or infinite; `cell` is a missing, NaN or infinite value of the batch, if there is one."""

    loss: float
    global_step: int
    cell: str = ""

    def __str__(self) -> str:
        what = f"the loss is {self.loss} at global_step {self.global_step}"
        if not self.cell:
            return f"{what}; lower the learning rate, or look at the input"
        cell = f"its batch has a missing, NaN or infinite value in {self.cell}"
        return f"{what}: {cell}; correct it, or set non_finite of this input to drop"


@dataclass(eq=False)
class NanGradientError(PsflowError, RuntimeError):
    """A gradient of a finite loss is NaN or infinite; no ps has received it. `row` is the id of a table's row."""

    role: str
    variable: str
    row: int | None
    value: float
    global_step: int

    def __str__(self) -> str:
        what = f"variable {self.variable!r}" if self.row is None else f"row {self.row} of table {self.variable!r}"
        value = f"{what} that is {self.value} at global_step {self.global_step}, although the loss is finite"
        remedy = "look for a logarithm or root of 0, or a division by 0, in model_fn, or lower the learning rate"
        return f"{self.role} computed a gradient of {value}; {remedy}"
