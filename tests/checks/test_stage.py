"""Stages as a check runs them, in a process of their own: it adopts and buries whatever has lost its parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import dataclasses, json, sys
from tests.checks.outcome import summary
from tests.checks.stage import RESULTS, Command, Stage, adopt_orphans, pytest_command, run

adopt_orphans()
outcome = run({stage})
print()
print(json.dumps([dataclasses.asdict(outcome), outcome.is_green, summary([outcome])]))
"""

pytestmark = pytest.mark.process


def ran(folder: Path, stage: str, test_module: str = "") -> tuple[dict[str, Any], bool, str, str]:
    """Run a stage in a folder with a test module; return its outcome, whether it is green, its summary, and the log."""
    (folder / "test_it.py").write_text(test_module)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(stage=stage)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    outcome, is_green, said = json.loads(done.stdout.splitlines()[-1])
    return outcome, is_green, said, done.stdout


def test_a_failed_test_is_named_with_the_command_that_runs_it_alone(tmp_path: Path) -> None:
    module = """
import pytest

@pytest.mark.parametrize("word", ["a b", "c"])
def test_words(word):
    assert word == "c"
"""
    outcome, is_green, said, _ = ran(tmp_path, "Stage('words', (pytest_command(RESULTS / 'words'),), 100)", module)
    assert outcome["failed_tests"] == ["test_it.py::test_words[a b]"]
    assert (outcome["num_passed"], outcome["problems"], is_green) == (1, [], False)
    assert outcome["cpu_secs"] > 0
    assert "FAILED in words: test_it.py::test_words[a b]\n" in said
    assert ".venv/bin/python -m pytest 'test_it.py::test_words[a b]'" in said
    assert (tmp_path / "runs" / "ci" / "words" / "junit.xml").exists()


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    outcome, is_green, said, _ = ran(
        tmp_path, "Stage('all', (pytest_command(RESULTS / 'all'),), 100)", "import nothing_"
    )
    assert (outcome["failed_tests"], is_green) == (["test_it.py"], False)
    assert "FAILED in all: exit code 2, with 1 failures of 1 tests: " in said


def test_a_command_has_its_own_variables_beside_those_of_the_check(tmp_path: Path) -> None:
    command = """Command(("sh", "-c", 'echo "in $WHERE of ${PYTHONPATH:+a path}"'), variables={"WHERE": "memory"})"""
    _, is_green, _, log = ran(tmp_path, f"Stage('said', ({command},), 100)")
    assert is_green
    assert "in memory of a path\n" in log


def test_no_test_is_no_success_unless_the_stage_says_so(tmp_path: Path) -> None:
    command = "Stage('none', (pytest_command(RESULTS / 'none'),), 100, may_be_empty={})"
    assert [ran(tmp_path, command.format(may_be_empty))[1] for may_be_empty in (False, True)] == [False, True]


def test_what_a_test_leaves_ends_with_its_stage(tmp_path: Path) -> None:
    module = """
import subprocess
from pathlib import Path

def test_leaves():
    program = "sleep 1000 >/dev/null 2>&1 & echo $!"
    Path("pid").write_text(subprocess.run(["sh", "-c", program], stdout=subprocess.PIPE, text=True).stdout)
"""
    _, is_green, _, log = ran(tmp_path, "Stage('left', (pytest_command(RESULTS / 'left'),), 100)", module)
    assert is_green
    assert "ended what left left: sleep 1000" in log
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_what_is_not_done_in_time_is_ended_and_says_which_test_it_was(tmp_path: Path) -> None:
    module = """
import time
from pathlib import Path

def test_hangs():
    Path("begun").touch()
    time.sleep(1000)
"""
    for limit_secs in (5, 25, 125):  # on a busy machine pytest itself may need the first of them
        stage = f"Stage('slow', (pytest_command(RESULTS / 'slow'),), 1, limit_secs={limit_secs})"
        _, is_green, said, log = ran(tmp_path, stage, module)
        assert not is_green
        assert f"FAILED in slow: not done within {limit_secs} s: " in said
        assert "OVER BUDGET" in said
        if (tmp_path / "begun").exists():
            break
    assert "test_it.py:7: KeyboardInterrupt" in log


FLAKY = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("number", range({num_tests}))
def test_measures(number):
    mark = Path(f"mark-{{number}}")
    is_second = mark.exists()
    mark.touch()
    assert is_second
"""


@pytest.mark.parametrize(("num_tests", "is_green"), [(2, True), (3, False)])
def test_up_to_two_measured_tests_run_once_more_alone_and_both_results_are_shown(
    tmp_path: Path, num_tests: int, is_green: bool
) -> None:
    stage = "Stage('measured', (pytest_command(RESULTS / 'measured'),), 100, may_rerun=True)"
    outcome, found, said, log = ran(tmp_path, stage, FLAKY.format(num_tests=num_tests))
    assert found == is_green
    assert log.count("assert False\n") >= num_tests
    assert (outcome["rerun"] is not None) == is_green
    assert said.count("passed alone at load ") == (num_tests if is_green else 0)


def test_commands_run_side_by_side_and_each_that_fails_is_named(tmp_path: Path) -> None:
    commands = "(Command(('sh', '-c', 'touch here; exit 3')), Command(('sh', '-c', 'echo beside; exit 4')))"
    _, is_green, said, log = ran(tmp_path, f"Stage('two', {commands}, 100)")
    assert not is_green
    assert "FAILED in two: exit code 3: sh -c touch here; exit 3" in said
    assert "FAILED in two: exit code 4: sh -c echo beside; exit 4" in said
    assert "\nbeside\n" in log


EARLY_ENDS = {
    "by os._exit": "os._exit(0)",
    "as if there were no test": "os._exit(5)",
    "by a word of pytest": "pytest.exit('', returncode=0)",
}
EARLY = """
import os
import pytest

def test_fails():
    raise AssertionError

def test_ends():
    {end}
"""


@pytest.mark.parametrize("end", EARLY_ENDS.values(), ids=EARLY_ENDS)
def test_a_run_that_ends_early_is_red_whatever_its_exit_code(tmp_path: Path, end: str) -> None:
    stage = "Stage('early', (pytest_command(RESULTS / 'early'),), 100, may_rerun=True, may_be_empty=True)"
    outcome, is_green, said, _ = ran(tmp_path, stage, EARLY.format(end=end))
    assert not is_green
    assert outcome["rerun"] is None
    assert "FAILED in early: exit code " in said


AGAIN = """
import pytest
from pathlib import Path

def test_measures():
    mark = Path("mark")
    if mark.exists():
        pytest.skip("not again")
    mark.touch()
    raise AssertionError
"""
IN_A_FIXTURE = """
import pytest

@pytest.fixture
def guard():
    yield
    raise AssertionError("left behind")

def test_measures(guard):
    pass
"""


def test_a_second_run_that_skips_is_red(tmp_path: Path) -> None:
    stage = "Stage('skips', (pytest_command(RESULTS / 'skips'),), 100, may_rerun=True)"
    _, is_green, said, _ = ran(tmp_path, stage, AGAIN)
    assert not is_green
    assert "1 of 1 tests did not run again" in said


def test_what_fails_in_a_fixture_does_not_run_again(tmp_path: Path) -> None:
    stage = "Stage('guard', (pytest_command(RESULTS / 'guard'),), 100, may_rerun=True)"
    outcome, is_green, _, _ = ran(tmp_path, stage, IN_A_FIXTURE)
    assert (is_green, outcome["rerun"], outcome["failed_tests"]) == (False, None, ["test_it.py::test_measures"])


def test_a_command_that_does_not_exist_is_a_problem_of_its_stage(tmp_path: Path) -> None:
    _, is_green, said, _ = ran(tmp_path, "Stage('none', (Command(('no-such-command',)),), 100)")
    assert not is_green
    assert "FAILED in none: no-such-command cannot be started: " in said
