"""What the owner of a trial leaves is read, whenever it was killed."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from psflow.ps_runtime.roles.events import Checkpoint, Event, RoleLost
from tests.chaos.owner import Files

EVENTS: list[Event] = [Checkpoint(40, "job/checkpoints/step_40", role="chief-0", number=3), RoleLost("", role="ps-0")]


@pytest.mark.parametrize(("num_missing", "num_read"), [(0, 2), (1, 1), (10**6, 0)])
def test_an_event_that_was_cut_off_is_left_out(tmp_path: Path, num_missing: int, num_read: int) -> None:
    whole = b"".join(map(pickle.dumps, EVENTS))
    files = Files.of(tmp_path, 1)
    files.events.write_bytes(whole[: max(0, len(whole) - num_missing)])
    assert files.read_events() == EVENTS[:num_read]


def test_an_owner_that_was_killed_leaves_no_word(tmp_path: Path) -> None:
    files = Files.of(tmp_path, 2)
    assert files.read_end() is None
    assert files.read_events() == []
    files.end.write_text('["", ["a push was lost"]]')
    assert files.read_end() == ("", ["a push was lost"])
