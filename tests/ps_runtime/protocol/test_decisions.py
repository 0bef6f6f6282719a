"""What a decision about a push means, and how it travels."""

from __future__ import annotations

import pytest

from psflow.ps_runtime.protocol.decisions import Decision, Entry


@pytest.mark.parametrize(
    ("decision", "makes_update"),
    [(Decision.APPLY, True), (Decision.SUM, False), (Decision.CLOSE, True), (Decision.DROP, False)],
)
def test_an_applied_push_and_a_closed_round_make_an_update(decision: Decision, makes_update: bool) -> None:
    assert Entry(decision, 0, 5, 1).makes_update is makes_update
