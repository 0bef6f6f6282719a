"""An acceptance test that no piece would run is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import HERE, pytest_collection_modifyitems
from tests.checks import tiers


class Item:
    """A test that was collected, with its marks."""

    def __init__(self, path: Path, *marks: pytest.MarkDecorator) -> None:
        self.path, self.nodeid = path, f"{path.name}::test_it"
        self.marks = [mark.mark for mark in marks]

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self.marks if mark.name == name]

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


def collect(*items: Item) -> None:
    given: Any = list(items)
    pytest_collection_modifyitems(given)


@pytest.mark.parametrize(
    "marks",
    [
        (),
        (pytest.mark.piece(number=0),),
        (pytest.mark.piece(number=tiers.NUM_PIECES + 1),),
        (pytest.mark.piece(3),),
        (pytest.mark.piece(number=1), pytest.mark.piece(number=2)),
    ],
)
def test_a_test_in_no_piece_or_in_two_is_refused(marks: tuple[pytest.MarkDecorator, ...]) -> None:
    with pytest.raises(pytest.UsageError, match=r"^test_new\.py::test_it: expected one mark pytest\.mark\.piece"):
        collect(Item(HERE / "test_new.py", *marks))


def test_a_test_in_one_piece_starts_processes_and_tests_elsewhere_need_none() -> None:
    item, other = Item(HERE / "test_new.py", pytest.mark.piece(number=3)), Item(HERE.parent / "test_other.py")
    collect(item, other)
    assert [mark.name for mark in item.marks] == ["piece", "process"]
    assert other.marks == []


def test_the_results_of_each_stage_have_a_place_of_their_own() -> None:
    stages = [*tiers.fast(), *tiers.ci(), *(stage for number in range(1, 9) for stage in tiers.piece(number))]
    places = [command.results for stage in stages for command in stage.commands if command.results is not None]
    assert len(places) == len(set(places)) > tiers.NUM_PIECES
