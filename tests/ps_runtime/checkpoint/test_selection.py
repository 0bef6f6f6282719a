from __future__ import annotations

import pytest

from psflow.ps_runtime.checkpoint.selection import Available, Selection
from psflow.ps_runtime.errors import UsageError

RUN = Available("runs/digits", [0, 300, 600, 900], best=600)


def choose(text: str, available: Available = RUN) -> list[int]:
    return Selection.parse(text).choose(available)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("all", [0, 300, 600, 900]),
        ("latest", [900]),
        ("best", [600]),
        ("last:2", [600, 900]),
        ("last:99", [0, 300, 600, 900]),
        ("1..600", [300, 600]),
        ("300..300", [300]),
        ("900, 300", [300, 900]),
        ("best,last:2,0..0", [0, 600, 900]),
    ],
)
def test_chooses(text: str, steps: list[int]) -> None:
    assert choose(text) == steps


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "lates",
            r"^expected all, latest, .* or steps such as 300,600; got 'lates'; did you mean 'latest'",
        ),
        ("", r"got ''$"),
        ("300,,600,", r"^expected [^\n]*; got ''$"),
        ("last:0", r"got 'last:0'$"),
        ("lst:3", r"got 'lst:3'; did you mean 'last:5'\?$"),
        ("-3", r"got '-3'$"),
        ("9..3", r"got '9\.\.3'; did you mean 3\.\.9\?$"),
        ("1..", r"got '1\.\.'$"),
    ],
)
def test_what_is_no_selection(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        choose(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "310",
            r"^no such checkpoint: runs/digits has none of step 310, the nearest is 300; there are 0, 300, 600, 900$",
        ),
        ("1..299", r"^no such checkpoint: runs/digits has none of the steps 1 to 299; there are 0, 300, 600, 900$"),
    ],
)
def test_what_is_not_there(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        choose(text)


def test_all_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        choose("1,300,2")
    assert len(caught.value.faults) == 2


def test_no_checkpoint_at_all() -> None:
    with pytest.raises(UsageError, match=r"^no such checkpoint: runs/digits has none; train first, or name another"):
        choose("all", Available("runs/digits", [], best=3))


def test_a_best_one_that_was_never_chosen_or_is_gone() -> None:
    with pytest.raises(
        UsageError, match=r"has no best checkpoint, as no evaluation with finite metrics was exported; name a step"
    ):
        choose("best", Available("runs/digits", [3], best=None))
    with pytest.raises(UsageError, match=r"the best one of d, of step 2, was removed; name another step; there is 3$"):
        choose("best", Available("d", [3], best=2))


def test_a_long_list_is_shortened() -> None:
    with pytest.raises(UsageError, match=r"there are 0, 1, 2, 3, 4, 5, \.\.\., 94, 95, 96, 97, 98, 99$"):
        choose("200", Available("d", range(100), best=None))


@pytest.mark.parametrize("text", ["best", "latest", "600"])
def test_a_single_checkpoint(text: str) -> None:
    assert len(Selection.parse_one(text).choose(RUN)) == 1


@pytest.mark.parametrize("text", ["all", "last:1", "300,600", "0..9", "bes"])
def test_what_is_not_a_single_checkpoint(text: str) -> None:
    with pytest.raises(UsageError, match=r"^expected best, latest, or a step such as 600; got "):
        Selection.parse_one(text)
