"""SIGTERM, where a block is to be left in order."""

from __future__ import annotations

import signal
import threading

import pytest

from psflow.ps_runtime.signals import sigterm_leaves


def test_sigterm_leaves_the_block_with_the_code_of_a_shell() -> None:
    with pytest.raises(SystemExit) as caught, sigterm_leaves():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_who_takes_the_signal_already_keeps_it() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with sigterm_leaves():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert seen == [signal.SIGTERM]


def test_other_threads_change_nothing() -> None:
    seen: list[object] = []

    def look() -> None:
        with sigterm_leaves():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]
