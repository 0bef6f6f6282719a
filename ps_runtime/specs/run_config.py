"""RunConfig: the settings of an Estimator's runs."""

from __future__ import annotations

import math
import os
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any

from fsspec.core import url_to_fs
from fsspec.utils import get_protocol

from psflow.ps_runtime.config.environment import tf_config
from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.numeric import whole_number
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.cluster_task import ClusterTask
from psflow.ps_runtime.specs.consistency import CONSISTENCIES, Async, Consistency, StepDeadline
from psflow.ps_runtime.specs.task_facts import ClusterSpec, TaskFacts
from psflow.ps_runtime.specs.tf_config import parse_tf_config
from psflow.ps_runtime.specs.wire_format import WireFormat
from psflow.ps_runtime.specs.worker_context import get_current_worker_context


def absolute(directory: str) -> str:
    """Return the absolute path of a local `directory`, also for a ``file://`` URL; any other URL unchanged."""
    if not is_local(directory):
        return directory
    return os.path.abspath(url_to_fs(directory)[1] if "://" in directory else directory)


def is_local(directory: str) -> bool:
    """Whether the path or URL is on the disks of this machine."""
    return get_protocol(directory) in ("file", "local")


_UNSET: Any = object()
DEFAULT_SAVE_SECS = 600.0
SESSION_CREATION_TIMEOUT_SECS = 7200
"""The Estimator's default."""
_TAKES_THE_PLACE_OF = {
    "save_checkpoints_steps": "save_checkpoints_secs",
    "save_checkpoints_secs": "save_checkpoints_steps",
}


@dataclass(frozen=True)
class RunConfig:
    """The settings of a run.

    Parameters
    ----------
    model_dir : str or None
        Directory of checkpoints, exports and the job file. None: that of TF_CONFIG, else a temporary directory, with a
        warning.
    tf_random_seed : int or None
        Seeds initial values and shuffling; None: a new seed for each model_dir.
    save_summary_steps : int or None
        Steps between two summaries of the chief; None or 0: never.
    save_checkpoints_steps, save_checkpoints_secs : number or None
        Give at most one; default: every 600 s. None or 0 for both: no checkpoints.
    keep_checkpoint_max : int or None
        Number of newest checkpoints to keep, beside that of the best export of each BestExporter; None
        or 0: all.
    keep_checkpoint_every_n_hours : float
        One checkpoint per period of this length is kept forever.
    log_step_count_steps : int or None
        Steps between two log lines of the chief with loss and speed; None: never.
    session_creation_timeout_secs : float
        How long a role waits for the others at the start. With a process for each role they wait 40 s for each other,
        unless this differs from its default.
    consistency : Consistency
        How the pushes of several replicas become updates.
    pipeline_depth : int
        0: pull, compute and push in turn; 1: read the next batch and pull its values while the current one is computed,
        which makes each gradient more stale by one.
    step_deadline : StepDeadline
        Limits a worker's step while other replicas wait for it.
    wire : WireFormat
        The number formats of gradients and parameters over TCP.
    cluster : ClusterTask or None
        The cluster, and the process in it, such as the target of a Server. Default: that of the distribute coordinator
        within a `worker_fn`, else that of TF_CONFIG, which is read once, here. None: no cluster.
    experiment : str or None
        Records each training of a program, and each evaluation, in the run of its job in this MLflow experiment; of a
        cluster, in the process of the chief. None: only in a run that is active, or after `autolog`.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message; an ArgumentTypeError if its type is wrong, a
        ConfigError if TF_CONFIG is wrong.
    """

    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = 100
    save_checkpoints_steps: int | None = _UNSET
    save_checkpoints_secs: float | None = _UNSET
    _: KW_ONLY
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float = 10000
    log_step_count_steps: int | None = 100
    session_creation_timeout_secs: float = SESSION_CREATION_TIMEOUT_SECS
    consistency: Consistency = field(default_factory=Async)
    pipeline_depth: int = 0
    step_deadline: StepDeadline = field(default_factory=StepDeadline)
    wire: WireFormat = field(default_factory=WireFormat)
    cluster: ClusterTask | None = field(default=_UNSET, compare=False)
    experiment: str | None = None
    _task: TaskFacts = field(default_factory=TaskFacts, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        steps, secs = self.save_checkpoints_steps, self.save_checkpoints_secs
        if steps is _UNSET:
            self._set("save_checkpoints_steps", None)
        if secs is _UNSET:
            self._set("save_checkpoints_secs", DEFAULT_SAVE_SECS if steps is _UNSET else None)
        faults = ArgumentFaults()
        self._check_places(faults)
        self._find_cluster(faults)
        self._check_intervals(faults)
        self._check_consistency(faults)
        faults.raise_any()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_places(self, faults: ArgumentFaults) -> None:
        if isinstance(self.model_dir, os.PathLike):
            self._set("model_dir", os.fspath(self.model_dir))
        faults.text("model_dir", self.model_dir)
        if isinstance(self.model_dir, str) and "\0" in self.model_dir:
            faults.add(f"model_dir should be a path or a URL, got {self.model_dir!r}, which has a NUL byte")
        if isinstance(self.model_dir, str) and not self.model_dir:
            faults.add("model_dir should be a path or a URL, got ''; leave it out for a temporary directory")
        faults.text("experiment", self.experiment)
        if self.experiment == "":
            faults.add("experiment should be the name of an MLflow experiment, got ''; leave it out to record nothing")
        if self.tf_random_seed is not None:
            self._set_whole("tf_random_seed", faults, "a whole number or None")

    def _find_cluster(self, faults: ArgumentFaults) -> None:
        """Set the cluster, and the model_dir, from the coordinator or TF_CONFIG, if the caller gives none."""
        if self.cluster is _UNSET:
            context = get_current_worker_context()
            found = parse_tf_config(tf_config() or "{}") if context is None else context.told
            self._set("cluster", found.task)
            self._check_same(found.model_dir, faults)
            self._set("model_dir", found.model_dir if self.model_dir is None else self.model_dir)
        if isinstance(self.cluster, ClusterTask):
            self._set("_task", self.cluster.facts)
        elif self.cluster is not None:
            faults.add_type("cluster", "a ClusterTask, as Server(...).target is, or None", self.cluster)

    def _check_same(self, other: str | None, faults: ArgumentFaults) -> None:
        if other is None or not isinstance(self.model_dir, str):
            return
        if absolute(self.model_dir) != absolute(other):
            faults.add(f"model_dir is {self.model_dir!r}, but TF_CONFIG has {other!r}; give only one")

    def _check_intervals(self, faults: ArgumentFaults) -> None:
        if self.save_checkpoints_steps is not None and self.save_checkpoints_secs is not None:
            faults.add("give save_checkpoints_steps or save_checkpoints_secs, not both")
        for name in ("save_checkpoints_steps", "save_summary_steps", "keep_checkpoint_max"):
            if getattr(self, name) is not None:
                self._set_whole(name, faults, "a whole number or None", at_least=0)
        if self.save_checkpoints_secs is not None:
            faults.number("save_checkpoints_secs", self.save_checkpoints_secs)
        for name in ("save_checkpoints_steps", "save_checkpoints_secs", "save_summary_steps"):
            if whole_number(getattr(self, name)) == 0:
                self._set(name, None)
        self._set("log_step_count_steps", faults.steps("log_step_count_steps", self.log_step_count_steps))
        for name in ("keep_checkpoint_every_n_hours", "session_creation_timeout_secs"):
            faults.number(name, getattr(self, name), above_zero=True)
        if isinstance(self.session_creation_timeout_secs, float) and math.isinf(self.session_creation_timeout_secs):
            faults.add("session_creation_timeout_secs should be finite, got inf")

    def _set_whole(self, name: str, faults: ArgumentFaults, expected: str, at_least: int | None = None) -> None:
        given = getattr(self, name)
        number = whole_number(given)
        if number is None:
            faults.add_type(name, expected, given)
        elif at_least is not None and number < at_least:
            faults.add(f"{name} should be {at_least} or more, got {given}")
        else:
            self._set(name, number)

    def _check_consistency(self, faults: ArgumentFaults) -> None:
        if not isinstance(self.step_deadline, StepDeadline):
            faults.add_type("step_deadline", "a StepDeadline", self.step_deadline)
        if not isinstance(self.wire, WireFormat):
            faults.add_type("wire", "a WireFormat", self.wire)
        self._set_whole("pipeline_depth", faults, "0 or 1")
        if whole_number(self.pipeline_depth) not in (None, 0, 1):
            faults.add(f"pipeline_depth should be 0 or 1, got {self.pipeline_depth}")
        if not isinstance(self.consistency, Consistency):
            known = ", ".join(f"{kind.__name__}()" for kind in CONSISTENCIES.values())
            faults.add_type("consistency", f"one of {known}", self.consistency)
        elif whole_number(self.pipeline_depth) == 1 and not self.consistency.may_pipeline:
            faults.add(
                f"{self.consistency.name} needs pipeline_depth 0, got 1: a gradient of values that are pulled ahead "
                "is of an earlier step and would be dropped"
            )

    @property
    def saves_checkpoints(self) -> bool:
        """Whether checkpoints are saved at all."""
        return self.save_checkpoints_steps is not None or self.save_checkpoints_secs is not None

    @property
    def task_type(self) -> str:
        """The type of this process; ``worker`` without a cluster. See TaskFacts for the others."""
        return self._task.task_type

    @property
    def task_id(self) -> int:
        """Index among the tasks of its type."""
        return self._task.task_id

    @property
    def is_chief(self) -> bool:
        """Whether this process saves checkpoints; True without a cluster."""
        return self._task.is_chief

    @property
    def num_ps_replicas(self) -> int:
        """Number of parameter servers; 0 without a cluster."""
        return self._task.num_ps_replicas

    @property
    def num_worker_replicas(self) -> int:
        """Number of training replicas, including the chief; 1 without a cluster."""
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
        """Return a copy for one task of a cluster, as passed to model_fn there."""
        config = replace(self)
        object.__setattr__(config, "_task", task)
        return config

    def replace(self, **changes: Any) -> RunConfig:
        """Return a copy with some settings changed; an unknown name is an error.

        Setting one of `save_checkpoints_steps` and `save_checkpoints_secs` clears the other.

        Examples
        --------
        >>> RunConfig(save_checkpoints_steps=10).replace(tf_random_seed=7).save_checkpoints_steps
        10
        >>> RunConfig().replace(save_checkpoints_steps=5).save_checkpoints_secs is None
        True
        """
        known = {f.name for f in fields(self) if f.init} - {"cluster"}
        faults = [f"RunConfig has no {n!r}{did_you_mean(n, known)}" for n in changes if n not in known]
        if faults:
            raise UsageError(tuple(faults))
        for name, other in _TAKES_THE_PLACE_OF.items():
            if changes.get(name) is not None:
                changes.setdefault(other, None)
        return replace(self, **changes).as_seen_by(self._task)
