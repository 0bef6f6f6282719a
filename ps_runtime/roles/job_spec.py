"""Everything a role must know of its job: what the flow hands to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from psflow.ps_runtime.checkpoint.job_file import Owner
from psflow.ps_runtime.model.export_bundle import ModelWriter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.model.warm_start import WarmStart
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.roles import Role, RoleId, job_roles
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.variables import ModelSpec

__all__ = ["JobSpec"]

LIVES_PER_ATTEMPT = 1 << 16


@dataclass(frozen=True)
class JobSpec:
    """One job.

    Parameters
    ----------
    job_id : str
        Stays the same when the job is resumed.
    token : str
        Secret of this attempt; who does not know it is refused by every ps.
    attempt : int
        The n-th start of the job, from 1; it makes the incarnations of all roles new.
    model_dir : str
        Path or URL of the directory of the training.
    owner : Owner
        Who has claimed the job there: every role looks for that claim before it begins and before what it writes.
    model_fn : callable
        The user's, as the Estimator takes it.
    params : mapping
        Given to model_fn.
    config : RunConfig
        When to save, to log and to summarise.
    train_spec : TrainSpec
        The input, the last step and the hooks of the training.
    eval_specs : tuple of EvalSpec
        Every checkpoint is evaluated against each; the exporters of the first choose. Empty: no evaluator.
    model : ModelSpec
        What the first call of model_fn has shown.
    optimizers : tuple of Optimizer
        Those of `model`, in its order. They travel as objects, so that every ps has one of a user, too; their learning
        rate is NaN, as each push brings its own.
    input : InputSpec
        Records, batches and epochs, and how many batches a split has.
    seed : int
        Of the job; what is random is drawn from it.
    num_ps, num_workers : int
        `num_workers` counts those beside the chief.
    transport : str
        ``auto``, ``shm``, ``unix`` or ``tcp``.
    writer : ModelWriter or None
        Writes what the exporters select.
    finished_step : int or None
        Where an earlier attempt came to its end: who trains on from there reads the input from its start.
    warm_start : WarmStart or None
        Where the first values come from, if model_dir has no checkpoint; None: from initializers alone.
    num_steps_before, num_examples_before : int
        Of the checkpoint that this attempt begins with, 0 without one: what comes after counts as made in the attempt.
    last_incarnation_before : int
        The greatest one of which that checkpoint has pushes, 0 without one: it takes none of an earlier life.
    """

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
    transport: str = "auto"
    writer: ModelWriter | None = None
    finished_step: int | None = None
    warm_start: WarmStart | None = None
    num_steps_before: int = 0
    num_examples_before: int = 0
    last_incarnation_before: int = 0

    @property
    def first_incarnation(self) -> int:
        """Of the first life of each role in this attempt; that of the n-th life after it is higher by n."""
        return max(self.attempt * LIVES_PER_ATTEMPT, self.last_incarnation_before + 1)

    @property
    def roles(self) -> tuple[RoleId, ...]:
        """All roles in the order in which they start."""
        return job_roles(self.num_ps, self.num_workers, evaluator=bool(self.eval_specs))

    def runs_program(self, role: RoleId) -> bool:
        """Return whether a role calls functions of the user: a ps does only where the reader of a stream is."""
        return role.role is not Role.PS or (role.index == 0 and self.input.has_one_reader)

    def without_program(self) -> JobSpec:
        """Return what a role needs that does not run the user's program: of that it has the optimizers alone."""
        return replace(
            self,
            model_fn=_not_here,
            params={},
            train_spec=TrainSpec(_not_here, self.train_spec.max_steps),
            eval_specs=(),
            writer=None,
            warm_start=None,
        )


def _not_here(**arguments: Any) -> Any:
    raise AssertionError("this role does not run the user's program")
