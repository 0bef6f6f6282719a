"""Records of the pieces of acceptance, in repositories of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.checks.outcome import Outcome, seconds
from tests.checks.records import append_record, stale_records

pytestmark = pytest.mark.process


def git(*words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a repository with one commit, which has no record yet."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "acceptance.md"
    path.write_text("| piece | tests |\n|---|---|\n| 1 | of its own |\n\n| piece | commit |\n|---|---|\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    return path


def outcome(**changed: object) -> Outcome:
    return Outcome(**({"name": "piece 1", "budget_secs": 1.0, "secs": 61.4, "cpu_secs": 9.0, "load": 2.34} | changed))


def test_a_record_has_what_both_stages_came_to(records: Path) -> None:
    append_record(1, [outcome(num_passed=3), outcome(num_passed=2, failed_tests=("a",), problems=("b",))], records)
    cells = [cell.strip() for cell in records.read_text().splitlines()[-1].split("|")]
    assert (cells[1], cells[4:]) == ("1", ["123", "2.3", "5", "2", ""])


def test_a_piece_without_a_record_or_with_an_old_one_is_named(records: Path) -> None:
    assert stale_records([1], records) == ["piece 1 of acceptance has no record; run make acceptance PIECE=1"]
    append_record(1, [outcome(num_passed=1)], records)
    append_record(2, [outcome(num_passed=1)], records)
    for number in range(50):
        git("commit", "--quiet", "--allow-empty", "-m", str(number))
    assert stale_records([1, 2], records) == []
    git("commit", "--quiet", "--allow-empty", "-m", "one more")
    append_record(2, [outcome(num_passed=1)], records)
    assert stale_records([1, 2], records) == [
        "piece 1 of acceptance was last run 51 commits ago; run make acceptance PIECE=1"
    ]
    with records.open("a") as file:
        file.write("| 1 | 0123456789 | | | | 1 | 0 |\n")
    assert "0123456789, which is not in this history" in stale_records([1], records)[0]


def test_a_piece_that_failed_or_ran_nothing_is_named(records: Path) -> None:
    append_record(1, [outcome(num_passed=3, failed_tests=("a",))], records)
    append_record(2, [outcome()], records)
    assert stale_records([1, 2], records) == [
        "piece 1 of acceptance: 3 passed and 1 failed last; run make acceptance PIECE=1",
        "piece 2 of acceptance: 0 passed and 0 failed last; run make acceptance PIECE=2",
    ]


def test_modules_that_take_a_second_or_more_are_kept(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    cases = [("tests.test_a", 0.7), ("tests.test_a.TestMachine", 0.6), ("tests.test_b", 0.9)]
    lines = "".join(f'<testcase classname="{name}" time="{secs}"/>' for name, secs in cases)
    (tmp_path / "test" / "junit.xml").write_text(f"<testsuites><testsuite>{lines}</testsuite></testsuites>")
    assert seconds(tmp_path) == {"tests.test_a": 1.3}
