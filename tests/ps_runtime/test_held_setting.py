from __future__ import annotations

from contextlib import nullcontext

import pytest

from psflow.ps_runtime.one_thread import HeldSetting


class Changes:
    """Notes what is changed, and what is undone."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __enter__(self) -> None:
        self.seen.append("changed")

    def __exit__(self, *_: object) -> None:
        self.seen.append("undone")


def test_the_last_block_undoes_what_the_first_has_changed() -> None:
    setting, changes = HeldSetting(), Changes()
    first, second = setting.held(lambda: changes), setting.held(lambda: None)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert changes.seen == ["changed"]
    second.__exit__(None, None, None)
    assert changes.seen == ["changed", "undone"]


def test_a_change_that_fails_is_held_by_nobody() -> None:
    setting, changes = HeldSetting(), Changes()
    with pytest.raises(ZeroDivisionError), setting.held(lambda: nullcontext(1 / 0)):
        pass
    with setting.held(lambda: changes):
        pass
    assert changes.seen == ["changed", "undone"]
