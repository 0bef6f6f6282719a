"""The parts of make mutate that need no mutant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation import rooms
from tests.mutation.outcomes import Mutant, Outcome
from tests.mutation.page import FIGURES, SURVIVORS, UNEXPLAINED, killed_percent, unexplained, untried, updated

ORDER = ["server", "placement"]
PAGE = """Before.

| room | mutants | killed | of these by the timeout |
|---|---|---|---|
| server | 20 | 19 | 1 |

Between.

| room | module | line | mutant | why no test fails |
|---|---|---|---|---|
| server | a.py | ``x = 1 \\| y`` | ``x = 2 \\| y`` | it is a guess |

After.
"""
SURVIVOR = Outcome("server", Mutant("a.py", "x = 1 | y", "x = 2 | y"), is_killed=False)
KILLED = Outcome("server", Mutant("a.py", "z", ""), is_killed=True)


def test_the_plan_names_modules_and_tests_that_exist() -> None:
    plan = rooms.read_plan()
    modules = [module for room in plan.rooms for module in room.modules]
    assert len(modules) == len(set(modules))


def test_a_room_of_conformance_has_20_mutants_and_its_file_first() -> None:
    found = [room for room in rooms.read_plan().rooms if room.name.startswith("conformance-")]
    assert len(found) >= 15
    for room in found:
        area = room.name.removeprefix("conformance-").replace("-", "_")
        assert (room.num_mutants, room.tests[0]) == (20, f"tests/conformance/test_{area}.py")


def test_an_area_of_conformance_without_a_room_is_told(tmp_path: Path) -> None:
    (tmp_path / "tests/conformance").mkdir(parents=True)
    for name in ("test_train.py", "test_index.py", "test_new.py", "conftest.py"):
        (tmp_path / "tests/conformance" / name).touch()
    assert rooms.areas_without_room(rooms.read_plan(), tmp_path) == ["tests/conformance/test_new.py"]


def test_a_module_that_has_moved_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rooms.toml names ps_runtime/server/\*.py, but .* has no such file"):
        rooms.read_plan(tmp_path)


def test_an_explanation_stays_while_its_mutant_survives() -> None:
    page = updated(PAGE, [SURVIVOR, KILLED], ORDER)
    assert page == PAGE.replace("| 20 | 19 | 1 |", "| 2 | 1 | 0 |")
    assert (killed_percent(page), unexplained(page)) == (50.0, [])


def test_a_mutant_that_is_killed_leaves_the_page() -> None:
    page = updated(PAGE, [KILLED, KILLED], ORDER)
    assert "it is a guess" not in page
    assert "After." in page
    assert updated(page, [SURVIVOR], ORDER).count(UNEXPLAINED) == 1


def test_tables_may_be_empty() -> None:
    page = f"{FIGURES}\nBetween.\n\n{SURVIVORS}"
    assert (unexplained(page), untried(page, ORDER)) == ([], ORDER)
    page = updated(page, [SURVIVOR, KILLED], ORDER)
    assert page.startswith(f"{FIGURES}| server | 2 | 1 | 0 |\n\nBetween.\n\n{SURVIVORS}| server | a.py |")
    assert untried(page, ORDER) == ["placement"]


def test_a_page_without_its_table_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"has no table that begins with '\| room \| mutants"):
        killed_percent("Nothing.")


def test_a_survivor_that_nobody_explained_is_reported() -> None:
    new = Outcome("placement", Mutant("b.py", "@property", ""), is_killed=False)
    page = updated(PAGE, [new], ORDER)
    assert unexplained(page) == ["b.py | ``@property`` | (removed)"]
    assert "| server | 20 | 19 | 1 |\n| placement | 1 | 0 | 0 |\n" in page
    assert updated(page, [new], ORDER) == page
    assert killed_percent(page) == pytest.approx(100 * 19 / 21)
