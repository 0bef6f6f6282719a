"""The states of a role, and the changes that lead from one to another."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from psflow.ps_runtime.cluster.incarnations import (
    ENDED,
    TRANSITIONS,
    RoleChange,
    RoleIncarnation,
    RoleRecord,
    RoleState,
)

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"


@pytest.mark.parametrize(("state", "change"), list(product(RoleState, RoleChange)))
def test_a_change_without_an_entry_leaves_a_role_as_it_is(state: RoleState, change: RoleChange) -> None:
    current = RoleIncarnation(7, "tls://ada:1", 0.0)
    record = RoleRecord(state, current=current)
    has_changed = record.change(change)
    assert has_changed == (change in TRANSITIONS[state])
    assert record.state is TRANSITIONS[state].get(change, state)
    assert record.current is (None if has_changed and record.state is RoleState.WAITING else current)


def test_only_a_rollback_leads_back_from_an_end() -> None:
    assert {state: set(TRANSITIONS[state]) for state in ENDED if TRANSITIONS[state]} == {
        RoleState.RETURNED: {RoleChange.RECALL}
    }


def test_a_role_that_fails_or_is_abandoned_after_its_end_keeps_its_end() -> None:
    record = RoleRecord(RoleState.RETURNED, report={"steps": 3})
    record.fail(ValueError("late"))
    record.abandon("late")
    assert (record.state, record.error, record.abandoned) == (RoleState.RETURNED, None, None)


def test_the_architecture_page_shows_the_table() -> None:
    page = PAGE.read_text()
    rows = {name: row for name, *row in re.findall(r"^\| `([A-Z]+)` \| (.+) \| (.*)\|$", page, re.MULTILINE)}
    assert {name: meaning for name, (meaning, _) in rows.items()} == {state.name: str(state) for state in RoleState}
    for name, (_, leads_to) in rows.items():
        shown = dict(re.findall(r"([A-Z_]+): `([A-Z]+)`", leads_to))
        assert shown == {change.name: state.name for change, state in TRANSITIONS[RoleState[name]].items()}, name
    changes = dict(re.findall(r"^\| ([A-Z_]+) \| (.+) \|$", page, re.MULTILINE))
    assert changes == {change.name: str(change) for change in RoleChange}
