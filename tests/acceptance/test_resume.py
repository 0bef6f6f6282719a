"""Ctrl-C to a training, the same command after it, and once more when there is nothing left to do."""

from __future__ import annotations

import signal

import pytest

from tests.flows.conftest import ROOT, Project
from tests.flows.interrupting import interrupted, metric_points, resumed_without_a_doubled_point

pytestmark = [pytest.mark.piece(number=4), pytest.mark.ci, pytest.mark.timeout(600), pytest.mark.cluster]

DIGITS = str(ROOT / "conf" / "digits.yaml")


def test_ctrl_c_ends_everything_and_the_same_command_resumes_until_nothing_is_left_to_do(project: Project) -> None:
    interrupted(project, signal.SIGINT, DIGITS, group=True)
    answer = resumed_without_a_doubled_point(project, DIGITS, "plots=false")
    points = metric_points(project, answer["run_id"])

    again = project.run("train", DIGITS, "plots=false", f"train.max_steps={answer['final_step']}")
    assert again["run_id"] == answer["run_id"]
    assert again["final_step"] == answer["final_step"]
    assert again["train"]["steps"] == 0
    assert metric_points(project, answer["run_id"]) == points
