"""Wherever a connection breaks, each request counts once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.client import shard_client
from psflow.ps_runtime.client.checkpoints import SavingClient
from psflow.ps_runtime.client.training import Grant, JobEnd, TrainingClient
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.protocol.message import Kind, Purpose
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec
from psflow.ps_runtime.transport import socket_server

MODEL = ModelSpec(
    (VariableSpec("a", (3,), "float64", 0), VariableSpec("b", (2,), "float64", 0)),
    (GradientDescent(learning_rate=1.0).config(),),
)
START = {"a": np.zeros(3), "b": np.zeros(2)}
NUM_STEPS = 3
SECS = 200.0


def run(ps: Any) -> tuple[dict[str, Any], dict[str, np.ndarray], int]:
    """Train and save as a chief does; return the job's counters, the values, and how often a client came back."""
    written: list[Any] = []

    def save() -> None:
        is_final = False
        while not is_final:
            snapshot, is_final = saving.await_snapshot(SECS)
            saving.snapshot(snapshot)
            written.append((snapshot.step, saving.write(snapshot.step)))
            saving.committed(snapshot.step)
        saving.finish()

    with ps.shards(Purpose.SAVE) as saving_shards, ps.shards() as shards:
        saving = SavingClient(saving_shards, MODEL, SECS)
        saving.initialize(START)
        saving.request_snapshot()
        saving.open()
        saver = threading.Thread(target=save)
        saver.start()
        client = TrainingClient(shards, MODEL, SECS, SECS, clock=lambda: 0.0)  # so all runs make the same requests
        answer = client.next_grant()
        while isinstance(answer, Grant):
            client.pull()
            step = float(answer.global_step + 1)
            np.testing.assert_array_equal(client.variables["a"], np.full(3, -step * (step - 1) / 2))
            answer = client.push({name: np.full_like(value, step) for name, value in START.items()}, [1.0], 4)
        assert answer == JobEnd(NUM_STEPS)
        saver.join(SECS)
        assert not saver.is_alive()
        client.leave()
        num_reconnects = sum(facts["reconnects"] for facts in shards.statistics()["shards"])
        num_reconnects += sum(facts["reconnects"] for facts in saving_shards.statistics()["shards"])
    assert [step for step, _ in written] == [0, NUM_STEPS]
    assert written[-1][1] == [{"step": NUM_STEPS, "shard": index} for index in range(len(ps.handlers))]
    return ps.job_requests.job.statistics(), ps.values(), num_reconnects


def check(ps: Any) -> int:
    statistics, values, num_reconnects = run(ps)
    assert (statistics["global_step"], statistics["examples"], statistics["phase"]) == (NUM_STEPS, 12, "finished")
    assert (statistics["repeats"], statistics["misses"]) == (0, 0)
    for name, value in values.items():
        np.testing.assert_array_equal(value, START[name] - sum(range(1, NUM_STEPS + 1)))
    assert all(handler.shard.torn_pushes == 0 for handler in ps.handlers)
    return num_reconnects


CASES = [
    (num_ps, shares_memory, lost, notices_late)
    for num_ps, shares_memory in [(1, False), (2, False), (2, True)]
    for lost in ("request", "reply")
    for notices_late in (False, True)
]


@pytest.mark.parametrize(("num_ps", "shares_memory", "lost", "notices_late"), [*CASES, (2, True, "connection", False)])
def test_a_run_is_the_same_wherever_a_connection_breaks(ps_of, monkeypatch, num_ps, shares_memory, lost, notices_late):
    monkeypatch.setattr(shard_client, "RETRY_SECS", 0.001)
    undisturbed = ps_of(MODEL, num_ps, max_steps=NUM_STEPS, shares_memory=shares_memory)
    assert check(undisturbed) == 0
    assert undisturbed.num_deposits == NUM_STEPS * shares_memory
    for number in range(len(undisturbed.kinds)):
        ps = ps_of(MODEL, num_ps, max_steps=NUM_STEPS, shares_memory=shares_memory)
        ps.faults = {number: lost}
        ps.notices_late = notices_late
        num_reconnects = check(ps)
        ps.close()
        message, is_deposit = ps.hit
        # a greeting that is said once more is no return, and who says good-bye does not come back
        is_unnoticed = message.kind in (Kind.HELLO, Kind.LEAVE)
        if is_deposit and lost == "reply":
            is_unnoticed = message.sequence == NUM_STEPS  # only the good-bye follows
        assert num_reconnects == (not is_unnoticed)


@pytest.mark.parametrize("shares_memory", [False, True])
def test_a_run_is_the_same_though_connections_break_all_the_time(ps_of, shares_memory):
    ps = ps_of(MODEL, 2, max_steps=NUM_STEPS, shares_memory=shares_memory)
    ps.faults = {number: "request" if number % 2 else "reply" for number in range(6, 80, 3)}
    ps.notices_late = True
    assert check(ps) >= 8


def test_parameters_are_asked_for_when_a_new_connection_shares_no_memory(ps_of, monkeypatch):
    def no_mailbox(*_: Any, **options: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(shard_client, "RETRY_SECS", 0.001)
    ps = ps_of(MODEL, 2, max_steps=NUM_STEPS, shares_memory=True)
    with ps.shards(Purpose.SAVE) as saving_shards, ps.shards() as shards:
        saving = SavingClient(saving_shards, MODEL, SECS)
        saving.initialize(START)
        saving.open()
        client = TrainingClient(shards, MODEL, SECS, SECS)
        client.next_grant()
        client.pull()
        client.push({name: np.ones_like(value) for name, value in START.items()}, [1.0], 4)
        monkeypatch.setattr(socket_server, "new_mailbox", no_mailbox)
        ps.faults = {len(ps.kinds): "request"}
        assert client.pull() == (1, 1)
        assert [shard.connection.transport for shard in shards] == ["shm", "unix"]
        for value in client.variables.values():
            np.testing.assert_array_equal(value, -1.0)
    ps.close()
