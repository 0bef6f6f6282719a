"""The identity of a process, and whether it is alive."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from psflow.ps_runtime.checkpoint.process import ProcessId


@pytest.mark.parametrize("boot", ["", "!", "~"])
def test_of_another_boot_nothing_can_be_told(boot: str) -> None:
    here = ProcessId.of(os.getpid())
    assert here.is_alive() is True
    assert replace(here, boot=boot).is_alive() is None


def test_a_process_that_has_taken_over_an_id_is_another_one() -> None:
    here = ProcessId.of(os.getpid())
    assert replace(here, started=here.started + 1).is_alive() is False
