from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from prefect import flow
from prefect.client.schemas.objects import State

from psflow.flows.invocation import invoke
from psflow.flows.parameters.base import FlowParameters
from psflow.ps_runtime.errors import FlowFailedError, InputError, RoleFailedError

pytestmark = pytest.mark.usefixtures("prefect_named")

OUTCOMES: dict[str, Any] = {
    "result": {"step": 3},
    "usage": InputError(("no such column", "no such file")),
    "failure": RoleFailedError("ps-0", "boom"),
}


class Named(FlowParameters):
    name: str


@flow
def ending(parameters: Named) -> dict[str, Any]:
    outcome: dict[str, Any] | Exception = OUTCOMES[parameters.name]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def outcome_of(name: str) -> dict[str, Any]:
    return invoke(ending, Named(name=name), lambda _: nullcontext())


def test_what_a_flow_that_has_begun_finds_out_is_no_usage_error() -> None:
    assert outcome_of("result") == {"step": 3}
    with pytest.raises(FlowFailedError, match=r"^no such column\nno such file$"):
        outcome_of("usage")
    with pytest.raises(RoleFailedError, match="ps-0 failed: boom"):
        outcome_of("failure")


def test_a_result_is_returned_though_the_server_gives_the_final_state_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from prefect import flow_engine

    propose = flow_engine.propose_state_sync

    def without_data(client: Any, state: State[Any], **options: Any) -> State[Any]:
        """Propose a state twice, as the client does when the first answer takes too long."""
        propose(client, state, **options)
        return propose(client, state, **options).model_copy(update={"data": None})

    monkeypatch.setattr(flow_engine, "propose_state_sync", without_data)
    assert outcome_of("result") == {"step": 3}
