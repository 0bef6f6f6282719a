"""Each case that the index names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
INDEX = Path(__file__).with_name("README.md").read_text()
CASES = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", INDEX)


def test_every_row_names_a_case():
    rows = [line for line in INDEX.splitlines() if line.startswith("| ") and not line.startswith(("| what", "| | "))]
    assert len(rows) > 150
    assert [row for row in rows if not re.search(r"`tests/[\w/]+\.py::test_\w+` \|$", row)] == []


def test_every_case_exists():
    assert len(CASES) > 400
    defined = {
        (path, name)
        for path in {path for path, _ in CASES}
        for name in re.findall(r"^ *def (test_\w+)\(", (ROOT / path).read_text(), re.MULTILINE)
    }
    assert sorted(set(CASES) - defined) == []


def test_every_file_of_cases_is_in_the_index():
    files = {path.relative_to(ROOT).as_posix() for path in Path(__file__).parent.glob("test_*.py")}
    assert files - {path for path, _ in CASES} == {Path(__file__).relative_to(ROOT).as_posix()}


def test_no_defect_is_left_out():
    assert re.findall(r"^\| (D\d+) \|", INDEX, re.MULTILINE) == [f"D{number}" for number in range(1, 19)]
