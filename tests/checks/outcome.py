"""What became of the stages of a check: a table, what failed, and the commands that run it alone."""

from __future__ import annotations

import json
import shlex
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Outcome", "Rerun", "failed_tests", "num_passed", "seconds", "summary"]

PYTEST = ".venv/bin/python -m pytest"


@dataclass(frozen=True)
class Rerun:
    """Tests that ran once more: which failed at first and then, and the load of the machine at the end of each."""

    failed: tuple[str, ...]
    load: float
    failed_again: tuple[str, ...]
    load_again: float


@dataclass(frozen=True)
class Outcome:
    """What became of a stage; `problems` are what failed beside tests."""

    name: str
    budget_secs: float
    secs: float
    cpu_secs: float
    load: float
    num_passed: int = 0
    failed_tests: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    rerun: Rerun | None = None

    @property
    def is_green(self) -> bool:
        """Whether nothing failed."""
        return not self.failed_tests and not self.problems

    @property
    def is_over_budget(self) -> bool:
        """Whether it took longer than planned."""
        return self.secs > self.budget_secs


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return what is to be read last: the table of stages, then each failure with the command that runs it alone."""
    lines = [f"{'stage':<24}{'':8}{'seconds':>8}{'CPU':>8}{'budget':>8}{'load':>7}"]
    for one in outcomes:
        row = f"{one.secs:>8.0f}{one.cpu_secs:>8.0f}{one.budget_secs:>8.0f}{one.load:>7.1f}"
        late = "  OVER BUDGET" if one.is_over_budget else ""
        lines.append(f"{one.name:<24}{'passed' if one.is_green else 'FAILED':<8}{row}{late}")
    total = sum(one.secs for one in outcomes), sum(one.cpu_secs for one in outcomes)
    lines.append(f"{'all':<32}{total[0]:>8.0f}{total[1]:>8.0f}{sum(one.budget_secs for one in outcomes):>8.0f}")
    for one in outcomes:
        if again := one.rerun:
            for test in again.failed:
                then = "failed again" if test in again.failed_again else "passed"
                lines.append(f"{test}: failed at load {again.load:.1f}, {then} alone at load {again.load_again:.1f}")
    for one in outcomes:
        for test in one.failed_tests:
            lines += [f"FAILED in {one.name}: {test}", f"    {PYTEST} {shlex.quote(test)}"]
        lines += [f"FAILED in {one.name}: {problem}" for problem in one.problems]
    is_green = all(one.is_green for one in outcomes)
    lines.append("all stages passed" if is_green else "see above for what failed")
    return "\n".join(lines)


def failed_tests(results: Path) -> list[str]:
    """Return the ids of the tests that failed, or did not start, in a run of pytest."""
    path = results / "cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def num_passed(results: Path) -> int:
    """Return how many tests passed in a run of pytest, which may have ended before it wrote its file."""
    path = results / "junit.xml"
    if not path.exists():
        return 0
    suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
    others = sum(int(suite.attrib[kind]) for suite in suites for kind in ("failures", "errors", "skipped"))
    return sum(int(suite.attrib["tests"]) for suite in suites) - others


def seconds(folder: Path) -> dict[str, float]:
    """Return how long each test module took in the latest runs below `folder`, where it took a second or more."""
    found: dict[str, float] = {}
    for path in sorted(folder.glob("*/junit.xml"), key=lambda path: path.stat().st_mtime):
        run: dict[str, float] = {}
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            module = ".".join(part for part in case.attrib["classname"].split(".") if not part[0].isupper())
            run[module] = run.get(module, 0.0) + float(case.attrib["time"])
        found |= run
    return {module: round(secs, 1) for module, secs in sorted(found.items()) if secs >= 1}
