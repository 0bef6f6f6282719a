"""Runs a job in this process: a ps on the in-process transport, the chief in this thread, the evaluator in another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.checkpoint.owner_mark import job_mark
from psflow.ps_runtime.errors import StoppedError
from psflow.ps_runtime.model.calls.caller import BuiltModel
from psflow.ps_runtime.one_thread import one_thread
from psflow.ps_runtime.roles.chief import Chief, open_chief
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.evaluator import run_evaluator
from psflow.ps_runtime.roles.events import Event
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.roles.ps import PsParts
from psflow.ps_runtime.roles.trainer import train
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.ps_runtime.transport.base import Connection
from psflow.ps_runtime.transport.in_process import InProcessServer

STOP_SECS = 10.0


def run_local(
    job: JobSpec,
    on_event: Callable[[Event], None],
    check: Callable[[], None],
    built: BuiltModel | None = None,
) -> dict[str, dict[str, Any]]:
    """Run a whole job in this process; return the report of each role. Blocks.

    Notes
    -----
    BLAS has one thread meanwhile, as in every role on a cluster, so that the weights are bitwise equal there and here.
    """
    with open_local(job, on_event, check, built) as local:
        train(local.chief.session)
        return local.finish()


@contextmanager
def open_local(
    job: JobSpec, on_event: Callable[[Event], None], check: Callable[[], None], built: BuiltModel | None = None
) -> Iterator[LocalJob]:
    """Open a whole job in this process, for a caller that makes its steps. Parameters as in `run_local`. Blocks."""
    mark = job_mark(job.model_dir, job.owner, "the training", check)
    parts = PsParts(job, 0, lambda event: server.post(event), fence=mark.confirm)
    server = InProcessServer(parts.handler, parts.handler.shard.arena)
    evaluator = _EvaluatorThread()

    def connect_to_ps(timeout_secs: float) -> Connection:
        return server.connect("ps-0")

    def context(role: Role, check: Callable[[], None]) -> RoleContext:
        return RoleContext(RoleId(role, 0), job.first_incarnation, check, on_event, fence=mark.confirm)

    def check_chief() -> None:
        check()
        evaluator.check()

    with one_thread(), mark.explaining(), ExitStack() as stack:
        for close in (server.close, parts.close, evaluator.stop):  # in reverse order, and all of them if one raises
            stack.callback(close)
        if job.eval_specs:
            evaluator.start(lambda: run_evaluator(job, context(Role.EVALUATOR, evaluator.check_stop), [connect_to_ps]))
        with open_chief(job, context(Role.CHIEF, check_chief), [connect_to_ps], built) as chief:
            yield LocalJob(chief, evaluator)


@dataclass(frozen=True)
class LocalJob:
    """An open job in this process."""

    chief: Chief
    _evaluator: _EvaluatorThread

    def finish(self) -> dict[str, dict[str, Any]]:
        """Wait for the final checkpoint and its evaluation; return the report of each role. Blocks."""
        return {"chief-0": self.chief.finish()} | self._evaluator.reports()


class _EvaluatorThread:
    """Runs an evaluator in a thread of its own and keeps its outcome."""

    def __init__(self) -> None:
        self._report: dict[str, Any] | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._is_stopped = threading.Event()

    def start(self, run: Callable[[], dict[str, Any]]) -> None:
        self._thread = threading.Thread(target=self._target, args=(run,), name="psflow-evaluator", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error of the evaluator, if it failed."""
        if self._error is not None:
            raise self._error

    def check_stop(self) -> None:
        """Raise StoppedError in the evaluator's thread once the evaluator should end."""
        if self._is_stopped.is_set():
            raise StoppedError("evaluator-0", "training has failed")

    def reports(self) -> dict[str, dict[str, Any]]:
        """Wait for the end; return the report, or raise the error of the evaluator."""
        if self._thread is not None:
            self._thread.join()
        self.check()
        return {} if self._report is None else {"evaluator-0": self._report}

    def stop(self) -> None:
        """End the evaluator after the current batch, checkpoint or export, or leave it to its daemon thread."""
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join(STOP_SECS)

    def _target(self, run: Callable[[], dict[str, Any]]) -> None:
        try:
            self._report = run()
        except BaseException as error:
            self._error = error
