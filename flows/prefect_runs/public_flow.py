"""Flows of which Prefect records no credentials: more people see its pages than a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Flow
from prefect.client.schemas.objects import State

from psflow.flows.prefect_runs.overlap import without_overlap
from psflow.ps_runtime.redaction import public

__all__ = ["public_flow"]

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
        flow.fn = without_overlap(function)  # after Prefect has taken the version from the file of the flow
        return flow

    return decorate
