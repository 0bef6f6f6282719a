"""What became of the stages of a check: a table, what failed, and the commands that run it alone."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Counts", "Outcome", "Rerun", "read_counts", "seconds", "summary"]

NOT_PASSED = ("failures", "errors", "skipped")


@dataclass(frozen=True)
class Rerun:
    """Tests that ran once more: which failed at first and then, and the load of the machine at the end of each."""

    failed: tuple[str, ...]
    load: float
    failed_again: tuple[str, ...]
    load_again: float


@dataclass(frozen=True)
class Outcome:
    """What became of a stage; `problems` are what failed beside tests, `alone` what runs a test alone, but its id."""

    name: str
    budget_secs: float
    secs: float
    cpu_secs: float
    load: float
    num_passed: int = 0
    failed_tests: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    alone: str = ""
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
    lines = [f"{'stage':<24}{'':8}{'seconds':>8}{'CPU':>8}{'budget':>8}{'load':>7}{'tests':>8}"]
    for one in outcomes:
        row = f"{one.secs:>8.0f}{one.cpu_secs:>8.0f}{one.budget_secs:>8.0f}{one.load:>7.1f}{one.num_passed:>8}"
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
            lines += [f"FAILED in {one.name}: {test}", f"    {one.alone} {shlex.quote(test)}"]
        lines += [f"FAILED in {one.name}: {problem}" for problem in one.problems]
    num_red = sum(not one.is_green for one in outcomes)
    lines.append(f"{num_red} of {len(outcomes)} stages failed" if num_red else "all stages passed")
    return "\n".join(lines)


@dataclass(frozen=True)
class Counts:
    """How many tests a run of pytest had, and how many of them passed."""

    tests: int
    passed: int


def read_counts(results: Path) -> Counts | None:
    """Return the counts of a run of pytest; None if it did not come to its end."""
    try:
        suites = list(ElementTree.parse(results / "junit.xml").getroot().iter("testsuite"))
    except (FileNotFoundError, ElementTree.ParseError):
        return None
    tests = sum(int(suite.attrib["tests"]) for suite in suites)
    return Counts(tests, tests - sum(int(suite.attrib[kind]) for suite in suites for kind in NOT_PASSED))


def seconds(folder: Path) -> dict[str, float]:
    """Return how long each test module took, in the longest run below `folder`, if that was a second or more."""
    found: dict[str, float] = {}
    for path in folder.glob("*/junit.xml"):
        run: dict[str, float] = {}
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            module = ".".join(part for part in case.attrib["classname"].split(".") if not part[:1].isupper())
            run[module] = run.get(module, 0.0) + float(case.attrib["time"])
        found |= {module: max(secs, found.get(module, 0.0)) for module, secs in run.items()}
    return {module: round(secs, 1) for module, secs in sorted(found.items()) if secs >= 1}
