"""Flows of which Prefect records no credentials, as more people see its pages than a configuration, and each end."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from psflow.flows.prefect_runs.overlap import without_overlap
from psflow.ps_runtime.redaction import public
from psflow.tasks.within import within

__all__ = ["public_flow"]

ANSWER_SECS = 5.0

_log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


class PublicFlow(Flow[P, R]):
    """A flow that runs with its parameters as they are, and has them recorded without credentials."""

    def serialize_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return what Prefect records; the parameters of a deployment it has already."""
        return {name: public(value) for name, value in super().serialize_parameters(parameters).items()}


def public_flow(
    name: str, flow_run_name: Callable[[], str] | str
) -> Callable[[Callable[P, R]], PublicFlow[P, R | State[None]]]:
    """Return a decorator as ``prefect.flow``, for a flow that keeps no results."""

    def decorate(function: Callable[P, R]) -> PublicFlow[P, R | State[None]]:
        flow = PublicFlow[P, R | State[None]](function, name=name, flow_run_name=flow_run_name, persist_result=False)
        flow.fn = _with_own_end(without_overlap(function))  # after Prefect has taken the version from the flow's file
        return flow

    return decorate


def _with_own_end(function: Callable[P, R]) -> Callable[P, R]:
    """Return what runs the `function` of a flow, and says how a run has ended that was to be cancelled, but was not.

    Prefect itself takes no state of such a run but Cancelled, and would show it as Cancelling from then on.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = function(*args, **kwargs)
        except Exception:
            _leave_cancelling(Failed())
            raise
        if not isinstance(result, State):
            _leave_cancelling(Completed())
        return result

    return run


def _leave_cancelling(state: State[Any]) -> None:
    """Let the current flow run have `state` if it is being cancelled; Prefect gives it once more, with its message."""
    run_id = UUID(flow_run.id)
    context = contextvars.copy_context()  # of Prefect's settings: else another server would be asked

    def leave() -> None:
        with get_client(sync_client=True) as client:
            current = client.read_flow_run(run_id).state
            if current is not None and current.is_cancelling():
                client.set_flow_run_state(run_id, state, force=True)

    try:
        within(ANSWER_SECS, lambda: context.run(leave), "the Prefect API")
    except Exception as error:  # whatever the server has: the run ends all the same, and the next look says that
        _log.debug("whether the flow run is being cancelled could not be read: %s", error)
