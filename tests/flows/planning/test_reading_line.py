"""The bar of a scan appears after two seconds and disappears at the end; without a terminal the log has lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from psflow.flows.planning import training_plan
from psflow.flows.planning.training_plan import ReadingBar, shown_reading
from psflow.ps_runtime.data.reading_progress import CallProgress, LoggedProgress, ScanProgress, watch_scan


def test_a_scan_is_shown_after_two_seconds_and_until_its_end() -> None:
    bar = Progress(console=Console(file=io.StringIO()))
    show = ReadingBar(bar)
    show(ScanProgress("[b] the train input", 100, 1000, 1.9))
    assert bar.tasks == []
    show(ScanProgress("[b] the train input", 200, 1000, 2.1))
    show(ScanProgress("[b] the train input", 300, 1000, 2.2))
    [task] = bar.tasks
    assert (task.description, task.completed, task.total) == ("reading [b] the train input", 300, 1000)
    assert task.visible
    show(ScanProgress("[b] the train input", 1000, 1000, 9.0))
    assert not task.visible


def test_a_call_is_shown_after_two_seconds_and_until_it_returns() -> None:
    bar = Progress(console=Console(file=io.StringIO()))
    show = ReadingBar(bar)
    show(CallProgress("the input_fn points", 1.0))
    assert bar.tasks == []
    show(CallProgress("the input_fn points", 2.0))
    [task] = bar.tasks
    assert (task.description, task.total) == ("the input_fn points is running", None)
    assert task.visible
    show(CallProgress("the input_fn points", 2.5, has_ended=True))
    assert not task.visible


def test_a_terminal_has_a_bar_and_the_log_lines_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[ScanProgress] = []
    logged: list[ScanProgress] = []
    monkeypatch.setattr(ReadingBar, "__call__", lambda self, progress: shown.append(progress))
    monkeypatch.setattr(LoggedProgress, "__call__", lambda self, progress: logged.append(progress))
    out = io.StringIO()
    for is_terminal in (True, False):
        console = Console(file=out, force_terminal=is_terminal, width=200)
        monkeypatch.setattr(training_plan, "Console", lambda stderr, console=console: console)
        with shown_reading():
            watch_scan(f"terminal: {is_terminal}")(5, 10)
    assert [progress.where for progress in shown] == ["terminal: True"]
    assert [progress.where for progress in logged] == ["terminal: False"]
