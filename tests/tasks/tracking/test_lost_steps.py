"""Lost steps of a job, over all of its attempts."""

from __future__ import annotations

import pytest
from mlflow.utils.validation import MAX_TAG_VAL_LENGTH

from psflow.tasks.tracking.lost_steps import LostSteps

NAMED = {"psflow.lost_steps": "501-700"}


@pytest.mark.parametrize(
    ("tags", "newest_step", "restored", "lost"),
    [
        ({}, -1, 0, ""),  # a new job
        ({}, 1000, 1000, ""),  # it goes on from its end
        ({}, 400, 500, ""),  # MLflow was away as the checkpoint was saved
        ({}, 700, 500, "501-700"),  # the flow was killed
        ({"psflow.reached_step": "700"}, 650, 500, "501-700"),
        ({"psflow.reached_step": "700"}, 700, 0, "1-700"),  # there was no checkpoint
        (NAMED, 700, 500, ""),  # the points are of the branch that is named
        (NAMED | {"psflow.reached_step": "500"}, 700, 500, ""),
        (NAMED | {"psflow.reached_step": "620"}, 700, 500, "501-620"),  # the branch after it is lost, too
        (NAMED | {"psflow.reached_step": "620"}, 700, 620, ""),
        (NAMED, 900, 800, "801-900"),
        ({"psflow.lost_steps": "manually", "psflow.reached_step": "?"}, 700, 500, "501-700"),
    ],
)
def test_what_an_earlier_attempt_has_lost(tags: dict[str, str], newest_step: int, restored: int, lost: str) -> None:
    assert LostSteps(tags, newest_step).roll_back(restored, restored) == lost


def test_an_earlier_attempt_loses_its_steps_once() -> None:
    lost = LostSteps({}, 700)
    assert [lost.roll_back(500, reached) for reached in (500, 500, 520)] == ["501-700", "", "501-520"]
    assert lost.num_steps == 220
    assert LostSteps(lost.tags(500), 700).roll_back(500, 500) == ""


def test_steps_of_a_loss_in_this_attempt_reach_as_far_as_either_did() -> None:
    assert LostSteps({}, 700).roll_back(500, 720) == "501-720"


def test_the_count_goes_on_where_the_tag_ends() -> None:
    lost = LostSteps({"psflow.lost_steps": "101-120, 101-110"}, 120)
    assert lost.num_steps == 30
    lost.roll_back(300, 400)
    assert lost.num_steps == 130
    assert lost.tags(300) == {"psflow.reached_step": "300", "psflow.lost_steps": "101-120, 101-110, 301-400"}


def test_an_attempt_that_ends_before_it_has_its_values_notes_the_step_of_the_one_before() -> None:
    lost = LostSteps({"psflow.reached_step": "700"}, 700)
    assert lost.reached_tag(500) == {"psflow.reached_step": "700"}
    lost.roll_back(500, 500)
    assert lost.reached_tag(510) == {"psflow.reached_step": "510"}


def test_a_job_that_has_lost_hundreds_of_branches_names_the_newest_and_counts_all() -> None:
    tags = {"psflow.lost_steps": "101-120"}
    for number in range(300):
        lost = LostSteps(tags, 120)
        lost.roll_back(1_000_000 + number, 1_000_010 + number)
        tags = lost.tags(1_000_000 + number)
    named = tags["psflow.lost_steps"].split(", ")
    assert named[0] == "2020 steps of earlier branches"
    assert named[1:] == [f"{1_000_001 + number}-{1_000_010 + number}" for number in range(200, 300)]
    assert lost.num_steps == LostSteps(tags, 120).num_steps == 3020


def test_the_longest_tag_is_within_the_limit_of_mlflow() -> None:
    lost = LostSteps({}, -1)
    for _ in range(200):
        lost.roll_back(10**15, 2 * 10**15)
    assert len(lost.tags(10**15)["psflow.lost_steps"]) < MAX_TAG_VAL_LENGTH
