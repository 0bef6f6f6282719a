"""Two of the trials that ``make chaos`` runs by the hundred: the others train on, and all go back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.running import run_trial
from tests.chaos.trials import Fault, Input, Parameters, Phase, Target, Trial, Update

TRIALS = [
    Trial(Target.WORKER_AND_EVALUATOR, Phase.COMMIT, Fault.KILL, Update.ASYNC, 2, Parameters.ROWS, 1, Input.DEALT),
    Trial(Target.PS_0, Phase.CUT, Fault.KILL, Update.BOUNDED_STALENESS, 1, Parameters.ROWS, 0, Input.GENERATOR),
]


@pytest.mark.cluster
@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_a_killed_role_costs_no_update_no_record_and_no_evaluation(trial: Trial, tmp_path: Path) -> None:
    outcome = run_trial(trial, tmp_path)
    assert outcome.violations == []
    assert outcome.has_hit
    assert outcome.num_kills == len(trial.target.roles)
    assert len(outcome.recovery_secs) == outcome.num_kills
