"""Some of the trials that ``make chaos`` runs by the hundred: the others train on, and all go back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.running import run_roles
from tests.chaos.trials import Fault, Input, Parameters, Phase, Target, Transport, Trial, Update

pytestmark = pytest.mark.process


TRIALS = [
    Trial(
        *(Target.WORKER_AND_EVALUATOR, Phase.COMMIT, Fault.KILL, Update.ASYNC, 2, Parameters.ROWS, 1, Input.DEALT),
        Transport.SHARED_MEMORY,
    ),
    Trial(
        *(Target.CHIEF, Phase.COMMIT, Fault.KILL, Update.SYNC, 2, Parameters.ROWS, 0, Input.EACH_READS_ALL),
        Transport.SHARED_MEMORY,
    ),
    Trial(
        *(Target.PS_0, Phase.CUT, Fault.KILL, Update.BOUNDED_STALENESS, 1, Parameters.ROWS, 0, Input.GENERATOR),
        Transport.TCP,
    ),
]


@pytest.mark.cluster
@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_a_killed_role_costs_no_update_no_record_and_no_evaluation(trial: Trial, tmp_path: Path) -> None:
    outcome = run_roles(trial, tmp_path)
    assert outcome.violations == []
    assert outcome.has_hit
    assert outcome.num_kills == len(trial.target.roles)
    assert len(outcome.recovery_secs) == outcome.num_kills
