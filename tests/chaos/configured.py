"""The model of a trial as a configuration names it, for ``psflow train``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from psflow import EstimatorSpec
from tests.chaos.gates import Gates
from tests.chaos.program import Program
from tests.chaos.trials import trial_of


def model_fn(features: Any, labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> EstimatorSpec:
    """Be the model of the trial that `params` describes, by the names of its axes, with its gates."""
    return _program(tuple(params["trial"].items()), params["gates"]).model_fn(features, labels, mode, config)


@cache
def _program(names: tuple[tuple[str, str], ...], gates: str) -> Program:
    trial = trial_of(dict(names))
    return Program(trial, Gates(Path(gates), trial.phase))
