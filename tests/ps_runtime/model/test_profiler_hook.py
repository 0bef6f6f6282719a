"""Traces of steps, in Chrome's format."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.hooks import reporting
from psflow.ps_runtime.model.hooks.base import SessionRunArgs, SessionRunContext, SessionRunValues
from psflow.ps_runtime.model.hooks.reporting import ProfilerHook


def some_work():
    return sorted([3, 1, 2])


def run(hook, steps, work=some_work):
    session = SimpleNamespace(global_step=0)
    context = SessionRunContext(SessionRunArgs(), session)
    hook.after_create_session(session, context.coordinator)
    for _ in range(steps):
        hook.before_run(context)
        work()
        session.global_step += 1
        hook.after_run(context, SessionRunValues(None))


def test_writes_the_calls_of_a_step_now_and_then(tmp_path):
    before = sys.getprofile()
    run(ProfilerHook(save_steps=2, output_dir=str(tmp_path / "traces")), 5)
    assert sys.getprofile() is before
    files = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert files == ["timeline-2.json", "timeline-4.json"]
    events = json.loads((tmp_path / "traces" / files[0]).read_text())["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "B"]
    assert "some_work (test_profiler_hook.py)" in names
    assert "sorted" in names
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)
    depth = 0
    for event in events:
        depth += 1 if event["ph"] == "B" else -1
        assert depth >= 0
    assert depth == 0


def test_a_trace_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "MAX_EVENTS", 10)
    run(ProfilerHook(save_steps=1, output_dir=str(tmp_path)), 1, lambda: [some_work() for _ in range(1000)])
    events = json.loads((tmp_path / "timeline-1.json").read_text())["traceEvents"]
    assert 10 <= len(events) < 20


@pytest.mark.parametrize("arguments", [{}, {"save_steps": 1, "save_secs": 1}, {"save_steps": 0}])
def test_takes_one_period(arguments):
    with pytest.raises(UsageError, match=r"save_\w+"):
        ProfilerHook(**arguments)
