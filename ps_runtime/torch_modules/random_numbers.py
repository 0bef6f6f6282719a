"""Random numbers of torch modules: their initial values, and those of a training step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from psflow.ps_runtime.initializers import variable_rng
from psflow.ps_runtime.model.calls.scope import ModelScope


@contextmanager
def any_seed(seed: int) -> Iterator[None]:
    """Have torch draw the numbers of `seed` in a block, and go on as before after it."""
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(seed & (2**63 - 1))
    try:
        yield
    finally:
        generator.set_state(before)


def step_seed(seed: int, replica: int | None, global_step: int) -> int:
    """Return the seed of a training step: it depends on the job's seed, the replica and global_step.

    A resumed job draws the same numbers, and replicas draw different ones.
    """
    return int(variable_rng(seed, f"torch:{replica or 0}:{global_step}").integers(2**63))


def seed_step(scope: ModelScope, config: Any) -> None:
    """Have torch draw the numbers of this step."""
    assert scope.seed is not None, "training calls have a seed"
    replica = None if config is None else config.global_id_in_cluster
    # torch.manual_seed seeds the generators of all devices, which takes 100 times as long
    torch.default_generator.manual_seed(step_seed(scope.seed, replica, scope.global_step))
