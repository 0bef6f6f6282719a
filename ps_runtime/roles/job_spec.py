"""Holds everything that a role must know of its job, as the flow sends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from psflow.ps_runtime.checkpoint.job_file import Owner
from psflow.ps_runtime.checkpoint.records import ALL_STEPS
from psflow.ps_runtime.model.export.bundle import ModelWriter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.model.warm_start import WarmStart
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.roles import Role, RoleId, job_roles
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.variables import ModelSpec

INCARNATIONS_PER_ATTEMPT = 1 << 16


@dataclass(frozen=True)
class JobSpec:
    """One job."""

    job_id: str
    token: str = field(repr=False)
    attempt: int
    model_dir: str
    owner: Owner
    model_fn: Callable[..., Any]
    params: Mapping[str, Any]
    config: RunConfig
    train_spec: TrainSpec
    eval_specs: tuple[EvalSpec, ...]
    model: ModelSpec
    optimizers: tuple[Optimizer, ...]
    input: InputSpec
    seed: int
    num_ps: int = 1
    num_workers: int = 0
    certificate: str = field(default="", repr=False)
    """A key and its certificate, as PEM: by it the roles know each other on TCP. A job in one process has none."""
    transport: str = "auto"
    writer: ModelWriter | None = None
    finished_step: int | None = None
    warm_start: WarmStart | None = None
    num_steps_before: int = 0
    num_examples_before: int = 0
    last_incarnation_before: int = 0
    end_reason: str = ALL_STEPS
    """Why the training ends where it reaches the max_steps of its TrainSpec."""
    substitute_batch: tuple[Any, Any] | None = field(default=None, repr=False)
    """The batch from which the job was planned, where the chief's part of the input is empty."""

    @property
    def first_incarnation(self) -> int:
        """Number of the first incarnation of each role in this attempt; each later one counts up from it."""
        return max(self.attempt * INCARNATIONS_PER_ATTEMPT, self.last_incarnation_before + 1)

    @property
    def roles(self) -> tuple[RoleId, ...]:
        """All roles in the order in which they start."""
        return job_roles(self.num_ps, self.num_workers, evaluator=bool(self.eval_specs))

    @property
    def evaluator_may_be_missing(self) -> bool:
        """Whether no evaluator may ever join; the final checkpoint is evaluated anyway."""
        task = self.config.cluster
        return task is not None and task.cluster.evaluator_may_be_missing

    def runs_program(self, role: RoleId) -> bool:
        """Return whether a role calls user functions: a ps does only if it has the reader of a stream."""
        return role.role is not Role.PS or (role.index == 0 and self.input.has_one_reader)

    def without_program(self) -> JobSpec:
        """Return the job for a role that does not run the user's program: only its optimizers remain."""
        return replace(
            self,
            model_fn=_not_here,
            params={},
            train_spec=TrainSpec(_not_here, self.train_spec.max_steps),
            eval_specs=(),
            writer=None,
            warm_start=None,
            substitute_batch=None,
        )


def _not_here(**arguments: Any) -> Any:
    raise AssertionError("this role does not run the user's program")
