"""The end that a lost chief has marked: taken up if it was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint.records import FinishedMarker, read_finished, write_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.roles.chief import take_up_end


@pytest.mark.parametrize("latest", [None, 20])
def test_a_marked_end_that_was_not_saved_is_forgotten(tmp_path: Path, toy: Any, latest: int | None) -> None:
    if latest is not None:
        toy.save(CheckpointStore(str(tmp_path)), latest)
    write_finished(str(tmp_path), 40, "a hook asked to stop")
    assert take_up_end(str(tmp_path)) is None
    assert read_finished(str(tmp_path)) is None


def test_a_saved_end_is_taken_up_and_unfinished_files_are_removed(tmp_path: Path, toy: Any) -> None:
    store = CheckpointStore(str(tmp_path))
    toy.save(store, 20)
    store.write_shard(40, 0, 1, {})
    end = FinishedMarker(20, "a hook asked to stop")
    write_finished(str(tmp_path), end.final_step, end.reason)
    assert take_up_end(str(tmp_path)) == read_finished(str(tmp_path)) == end
    assert not Path(store.path(40)).exists()


def test_where_no_chief_has_come_to_the_end_there_is_none(tmp_path: Path) -> None:
    assert take_up_end(str(tmp_path)) is None
