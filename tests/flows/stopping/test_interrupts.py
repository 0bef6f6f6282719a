from __future__ import annotations

import os
import pickle
import signal

import pytest

from psflow.flows.stopping.interrupts import AbortedRunError, InterruptedRunError, Interrupts, _current


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_for_the_end(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        interrupts.check()
        send(number)
        with pytest.raises(InterruptedRunError, match=f"^ended by {number.name}$"):
            interrupts.check()
    assert interrupts.received is number
    assert signal.getsignal(number) is before


def test_a_second_signal_aborts() -> None:
    with Interrupts():
        send(signal.SIGINT)
        with pytest.raises(AbortedRunError, match=r"^aborted by a second SIGTERM$") as caught:
            send(signal.SIGTERM)
    assert pickle.loads(pickle.dumps(caught.value)).received is signal.SIGTERM


def test_the_signal_that_comes_with_a_cancellation_does_not_abort() -> None:
    with Interrupts() as interrupts:
        interrupts._cancel()
        send(signal.SIGTERM)
        with pytest.raises(InterruptedRunError, match=r"^ended by a cancellation in Prefect$"):
            interrupts.check()
    assert interrupts.received is signal.SIGTERM


def test_what_ended_a_flow_ends_the_one_around_it() -> None:
    with Interrupts() as outer:
        with Interrupts() as inner:
            send(signal.SIGINT)
        assert inner.received is signal.SIGINT
        with pytest.raises(InterruptedRunError, match="ended by SIGINT"):
            outer.check()
    with Interrupts() as later:
        later.check()


def test_a_signal_that_ends_the_wait_for_the_end_of_a_block_leaves_nothing_of_the_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with Interrupts() as outer:
        inner = Interrupts()
        monkeypatch.setattr(inner._watch, "__exit__", interrupted)
        with pytest.raises(KeyboardInterrupt), inner:
            send(signal.SIGINT)
        assert outer.received is signal.SIGINT
        assert _current.get() is outer
