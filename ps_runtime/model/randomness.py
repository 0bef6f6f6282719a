"""What a call of model_fn draws at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from psflow.ps_runtime.initializers import variable_rng
from psflow.ps_runtime.model.scope import current_scope

__all__ = ["step_random"]


def step_random(name: str, config: Any) -> np.random.Generator:
    """Return the random generator of one thing that a training call draws.

    It depends on the job's seed, `name`, the replica and the global_step of the call alone: a job that resumes draws
    what it would have drawn, and replicas draw different things.

    Raises
    ------
    ModelFnError
        Outside a model_fn.
    """
    scope = current_scope("random numbers")
    assert scope.seed is not None, "a training call has one"
    replica = None if config is None else config.global_id_in_cluster
    return variable_rng(scope.seed, f"{name}:{replica or 0}:{scope.global_step}")
