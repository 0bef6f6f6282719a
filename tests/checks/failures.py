"""A plugin of pytest: it prints each failure when it happens, and keeps it in a file, whatever ends the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

__all__ = ["read_failures"]

FILE = "failures.jsonl"
COLLECTION = "collection"


def pytest_configure(config: pytest.Config) -> None:
    """Write beside the junit file, in the process that hears of all tests."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(config, Path(config.option.xmlpath).with_name(FILE)))


class _Failures:
    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._keep(report.nodeid, report.when, report.longreprtext)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._keep(report.nodeid, COLLECTION, report.longreprtext)

    def _keep(self, test: str, phase: str, text: str) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps([test, phase]) + "\n")
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        terminal.ensure_newline()
        terminal.write_sep("-", f"FAILED {test} ({phase})", red=True)
        terminal.write_line(text)


def read_failures(results: Path) -> dict[str, set[str]]:
    """Return the tests that failed in a run of pytest, with the phases of each in which it did."""
    found: dict[str, set[str]] = {}
    path = results / FILE
    for line in path.read_text().splitlines() if path.exists() else []:
        test, phase = json.loads(line)
        found.setdefault(test, set()).add(phase)
    return found
