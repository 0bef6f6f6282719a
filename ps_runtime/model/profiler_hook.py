"""A hook that writes down which functions a step calls, and for how long."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from psflow.ps_runtime.model.hook_timer import SecondOrStepTimer, check_period
from psflow.ps_runtime.model.hooks import Coordinator, SessionRunContext, SessionRunHook, SessionRunValues
from psflow.ps_runtime.specs.arguments import ArgumentFaults

__all__ = ["ProfilerHook"]

logger = logging.getLogger(__name__)

MAX_EVENTS = 200_000
"""Of a trace, some 20 MB; what comes after them is left out."""


class ProfilerHook(SessionRunHook):
    """Trace the function calls of one step now and then, in Chrome's trace format.

    Writes ``timeline-<step>.json``, which ``chrome://tracing`` and https://ui.perfetto.dev show. A step that is traced
    takes several times as long.

    Parameters
    ----------
    save_steps : int, optional
        Trace a step after each so many; or
    save_secs : float, optional
        after so many seconds. Exactly one of them.
    output_dir : str
        A local directory; it is made. The default is the working directory of the role.

    Raises
    ------
    UsageError
        If not exactly one period is given, or it is not greater than 0; an ArgumentTypeError for a wrong type.
    """

    def __init__(self, save_steps: int | None = None, save_secs: float | None = None, output_dir: str = "") -> None:
        check_period(save_steps=save_steps, save_secs=save_secs)
        faults = ArgumentFaults("ProfilerHook: ")
        if not isinstance(output_dir, str | os.PathLike):
            faults.add_type("output_dir", "a str or path", output_dir)
        faults.raise_any()
        self._timer = SecondOrStepTimer(save_secs, save_steps)
        self._output_dir = output_dir
        self._trace: _Trace | None = None

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Begin to count."""
        self._timer.update_last_triggered_step(session.global_step)

    def before_run(self, run_context: SessionRunContext) -> None:
        """Trace from here on, if it is time to."""
        if self._timer.should_trigger_for_step(run_context.session.global_step + 1):
            self._trace = _Trace()
            self._trace.start()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write the trace of this step, if there is one."""
        if self._trace is None:
            return
        events = self._trace.stop()
        self._trace = None
        step = run_context.session.global_step
        self._timer.update_last_triggered_step(step)
        path = Path(self._output_dir, f"timeline-{step}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"traceEvents": events}))
        logger.info("traced step %d into %s", step, path)


class _Trace:
    """The calls of this thread between `start` and `stop`."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._depth = 0
        self._ids = {"pid": os.getpid(), "tid": threading.get_native_id()}

    def start(self) -> None:
        self._former = sys.getprofile()
        sys.setprofile(self._note)

    def stop(self) -> list[dict[str, Any]]:
        sys.setprofile(self._former)
        for _ in range(self._depth):  # those that stop() was called in
            self._add("E", "")
        return self._events

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if len(self._events) >= MAX_EVENTS:
            sys.setprofile(self._former)
        elif event in ("call", "c_call"):
            code = frame.f_code
            name = code.co_qualname if event == "call" else getattr(argument, "__qualname__", repr(argument))
            self._add("B", f"{name} ({Path(code.co_filename).name})" if event == "call" else name)
            self._depth += 1
        elif self._depth:  # else it returns from a call that began before the trace
            self._add("E", "")
            self._depth -= 1

    def _add(self, phase: str, name: str) -> None:
        self._events.append({"ph": phase, "name": name, "ts": time.perf_counter_ns() / 1000, **self._ids})
