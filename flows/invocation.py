"""Runs a flow in the process of its command: preparation, execution, signals."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prefect import tags
from prefect.client.schemas.objects import State
from prefect.states import Cancelled

from psflow.flows.head_start import head_start
from psflow.flows.parameters.base import FlowParameters, value_of
from psflow.flows.prefect_runs import label_flow_run
from psflow.flows.stopping.interrupts import AbortedRunError, InterruptedRunError
from psflow.flows.timings import timings
from psflow.ps_runtime.cluster.fast_exit import leave_quickly
from psflow.ps_runtime.cluster.fork_server import start_fork_server
from psflow.ps_runtime.errors import FlowFailedError, UsageError
from psflow.ps_runtime.redaction import redact_logs
from psflow.tasks.orphaned_runs import FLOW_RUN_TAG, close_orphaned_runs
from psflow.tasks.prefect_server.api import check_named_api, prefect_api
from psflow.tasks.role_runs import hide_tracebacks
from psflow.tasks.tracking.store import import_in_background, store_modules

P = TypeVar("P", bound=FlowParameters)
T = TypeVar("T")

hide_tracebacks()  # every flow imports this module
redact_logs()


@dataclass
class Invocation(Generic[T]):
    """One run of a flow."""

    prepared: T
    started: float
    received: signal.Signals | None = None

    def cancelled(self, interrupted: InterruptedRunError | AbortedRunError, what_then: str) -> State[Any]:
        """Record the signal; return the state of the interrupted flow, with the advice `what_then`."""
        self.received = interrupted.received
        return Cancelled(message=f"{interrupted}; {what_then}")


_current: ContextVar[Invocation[Any] | None] = ContextVar("psflow_invocation", default=None)


def invoke(
    flow: Callable[..., Any],
    parameters: P,
    prepare: Callable[[P], AbstractContextManager[T]],
    *,
    closes_mlflow_runs: bool = True,
) -> dict[str, Any]:
    """Run `flow` in this process, with a local Prefect server if none is named; return its result.

    Before, runs of ended processes are closed; with `closes_mlflow_runs` False the flow does that in MLflow.

    Raises
    ------
    UsageError
        As `prepare` does; or if a Prefect API is named and does not answer.
    FlowFailedError
        If the request turned out to be invalid later.
    SystemExit
        With 128 + the number of the signal, if one ended the flow.
    """
    with head_start() as begun:
        check_named_api()  # before long-running steps
        with _prepared(parameters, prepare) as prepared, prefect_api(begun.server):
            timings.mark("the Prefect server answers")
            invocation = Invocation(prepared, begun.began_at)
            begun.rest.close()
            close_orphaned_runs(in_mlflow=closes_mlflow_runs)
            result, failure = _outcome(flow, parameters, invocation)
    if invocation.received is not None:
        raise SystemExit(128 + invocation.received)
    if isinstance(failure, UsageError):
        raise FlowFailedError(failure.faults) from failure  # the flow had started
    if failure is not None:
        raise failure
    return result


def _outcome(
    flow: Callable[..., Any], parameters: FlowParameters, invocation: Invocation[Any]
) -> tuple[dict[str, Any], Exception | None]:
    """Run `flow` as `invocation`; return its result and its failure, after a graceful end of its server."""
    token = _current.set(invocation)
    try:
        with tags(FLOW_RUN_TAG, *filter(None, [value_of(parameters, "experiment")])):
            return flow(parameters), None  # not its state, which lacks data if a slow server sends it twice
    except Exception as error:
        return {}, error
    finally:
        _current.reset(token)


@contextmanager
def invoked(parameters: P, prepare: Callable[[P], AbstractContextManager[T]]) -> Iterator[Invocation[T]]:
    """Give the invocation of `invoke`, or a new one if Prefect or another flow started this flow."""
    label_flow_run()
    current = _current.get()
    if current is not None:
        token = _current.set(None)  # subflows have their own invocations
        try:
            yield current
        finally:
            _current.reset(token)
        return
    leave_quickly()
    started = time.monotonic()
    with _prepared(parameters, prepare) as prepared:
        yield Invocation(prepared, started)


@contextmanager
def _prepared(parameters: P, prepare: Callable[[P], AbstractContextManager[T]]) -> Iterator[T]:
    """Give the result of `prepare`; the processes of a local cluster import their modules meanwhile."""
    cluster = value_of(parameters, "cluster")
    if cluster is not None and cluster.address is None:
        start_fork_server()
    with prepare(parameters) as prepared:
        import_in_background(*store_modules())  # now, as the user's modules are there, and the Prefect server is not
        yield prepared
