"""How a run goes: the settings of an Estimator."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.specs.consistency import CONSISTENCIES, Async, Consistency
from psflow.ps_runtime.specs.task_facts import ClusterSpec, TaskFacts

__all__ = ["RunConfig"]

_UNSET: Any = object()
DEFAULT_SAVE_SECS = 600.0


@dataclass(frozen=True)
class RunConfig:
    """How a run goes.

    Parameters
    ----------
    model_dir : str or None
        Where checkpoints, exports and the job file are; None: a temporary directory, with a warning.
    tf_random_seed : int or None
        Seeds initial values and shuffling; None: a fresh one for each model_dir.
    save_checkpoints_steps, save_checkpoints_secs : number or None
        One of the two; by default every 600 s. Both None: no checkpoints.
    save_summary_steps : int
        How often the chief writes summaries.
    log_step_count_steps : int
        How often the chief logs loss and speed.
    keep_checkpoint_max : int or None
        How many checkpoints stay; None or 0: all.
    keep_checkpoint_every_n_hours : float
        One checkpoint of each such span stays for good.
    session_creation_timeout_secs : float
        How long a role waits for the others at the start.
    consistency : Consistency
        How the pushes of several replicas become updates.
    pipeline_depth : int
        0: pull, compute and push in turn; 1: the next batch is read and its values pulled while this one is computed,
        which makes each gradient staler by one.

    Raises
    ------
    UsageError
        All faults in one message.
    """

    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int = 100
    save_checkpoints_steps: int | None = _UNSET
    save_checkpoints_secs: float | None = _UNSET
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float = 10000
    log_step_count_steps: int = 100
    session_creation_timeout_secs: float = 7200
    consistency: Consistency = field(default_factory=Async)
    pipeline_depth: int = 0
    _task: TaskFacts = field(default_factory=TaskFacts, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        steps, secs = self.save_checkpoints_steps, self.save_checkpoints_secs
        if steps is _UNSET:
            object.__setattr__(self, "save_checkpoints_steps", None)
        if secs is _UNSET:
            object.__setattr__(self, "save_checkpoints_secs", DEFAULT_SAVE_SECS if steps is _UNSET else None)
        faults = [
            f"{name} should be greater than 0, got {value!r}"
            for name in (
                "save_checkpoints_steps",
                "save_checkpoints_secs",
                "save_summary_steps",
                "log_step_count_steps",
                "session_creation_timeout_secs",
                "keep_checkpoint_every_n_hours",
            )
            if (value := getattr(self, name)) is not None and value <= 0
        ]
        if self.save_checkpoints_steps is not None and self.save_checkpoints_secs is not None:
            faults.append("give save_checkpoints_steps or save_checkpoints_secs, not both")
        if self.keep_checkpoint_max is not None and self.keep_checkpoint_max < 0:
            faults.append(f"keep_checkpoint_max should be 0 (all) or more, got {self.keep_checkpoint_max}")
        if self.pipeline_depth not in (0, 1):
            faults.append(f"pipeline_depth should be 0 or 1, got {self.pipeline_depth}")
        if not isinstance(self.consistency, Consistency):
            known = ", ".join(f"{kind.__name__}()" for kind in CONSISTENCIES.values())
            faults.append(f"consistency should be one of {known}, got {self.consistency!r}")
        elif self.pipeline_depth == 1 and not self.consistency.may_pipeline:
            faults.append(
                f"{self.consistency.name} needs pipeline_depth 0, got 1: a gradient of values that were pulled ahead "
                "is of an earlier step and would be dropped"
            )
        if faults:
            raise UsageError(tuple(faults))

    @property
    def saves_checkpoints(self) -> bool:
        """Whether checkpoints are saved at all."""
        return self.save_checkpoints_steps is not None or self.save_checkpoints_secs is not None

    @property
    def task_type(self) -> str:
        """What this process is: ``chief``, ``worker``, ``ps`` or ``evaluator``; ``worker`` without a cluster."""
        return self._task.task_type

    @property
    def task_id(self) -> int:
        """Index among the tasks of its type."""
        return self._task.task_id

    @property
    def is_chief(self) -> bool:
        """Whether this process saves checkpoints: without a cluster it does."""
        return self._task.is_chief

    @property
    def num_ps_replicas(self) -> int:
        """Number of parameter servers; 0 without a cluster."""
        return self._task.num_ps_replicas

    @property
    def num_worker_replicas(self) -> int:
        """Number of training replicas, the chief among them; 1 without a cluster."""
        return self._task.num_worker_replicas

    @property
    def global_id_in_cluster(self) -> int | None:
        """Index among all training tasks: the chief, the workers, the ps. None for an evaluator."""
        return self._task.global_id_in_cluster

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The training tasks by type; empty without a cluster, and for an evaluator."""
        return self._task.cluster_spec

    def as_seen_by(self, task: TaskFacts) -> RunConfig:
        """Return a copy for one task of a cluster: what model_fn gets there."""
        config = replace(self)
        object.__setattr__(config, "_task", task)
        return config

    def replace(self, **changes: Any) -> RunConfig:
        """Return a copy with some settings changed; an unknown name is an error.

        Examples
        --------
        >>> RunConfig(save_checkpoints_steps=10).replace(tf_random_seed=7).save_checkpoints_steps
        10
        """
        known = {f.name for f in fields(self) if f.init}
        faults = [f"RunConfig has no {n!r}{did_you_mean(n, known)}" for n in changes if n not in known]
        if faults:
            raise UsageError(tuple(faults))
        return replace(self, **changes).as_seen_by(self._task)
