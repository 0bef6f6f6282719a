"""64 replicas on one ps: its memory stays flat, nothing piles up, and no replica falls behind.

PSFLOW_LOAD_SECS says for how long; 300 for the record.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pytest

from psflow.ps_runtime.errors import RefusedError
from psflow.ps_runtime.latencies import Latencies
from psflow.ps_runtime.protocol.message import Purpose
from tests.acceptance.load import START_SECS, Replica, Sample, open_job, serve, shards_of, train

LOAD_SECS = float(os.environ.get("PSFLOW_LOAD_SECS", "20"))
NUM_REPLICAS, NUM_PROCESSES = 64, 4
NUM_SEATS = NUM_REPLICAS + 2
"""Room for the saver and one more."""
MIN_SHARE = 0.5
"""Of the steps of the median replica, that the slowest one makes."""
MAX_GROWTH_BYTES = 2 << 20
"""From a fifth of the time on, when all memory that is used again and again has been touched."""

pytestmark = [
    pytest.mark.piece(number=8),
    pytest.mark.measured,
    pytest.mark.timeout(int(LOAD_SECS + 2 * START_SECS + 60)),
]


@contextmanager
def process(target: Any, *args: Any) -> Iterator[Connection]:
    """Run a function in a process of its own; give the pipe that it gets first."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    child = context.Process(target=target, args=(theirs, *args), daemon=True)
    child.start()
    theirs.close()
    try:
        yield mine
    finally:
        mine.close()
        child.join(10)
        child.kill()
        child.join()


def said(pipe: Connection) -> Any:
    """Return what a process says."""
    assert pipe.poll(START_SECS), "a process says nothing"
    return pipe.recv()


def run_load(secs: float) -> tuple[list[Sample], dict[int, Replica]]:
    """Have all replicas train for some seconds."""
    with ExitStack() as stack:
        ps = stack.enter_context(process(serve, NUM_REPLICAS, NUM_SEATS))
        address = said(ps)
        open_job(address)
        groups = [list(range(first, NUM_REPLICAS, NUM_PROCESSES)) for first in range(NUM_PROCESSES)]
        pipes = [stack.enter_context(process(train, address, group)) for group in groups]
        assert {said(pipe) for pipe in pipes} == {"ready"}
        refuses_beyond_its_seats(address)
        for word in ("begin", "end"):
            for pipe in pipes:
                pipe.send(word)
            time.sleep(secs if word == "begin" else 0)
        replicas = {index: done for pipe in pipes for index, done in said(pipe).items()}
        ps.send("end")
        return said(ps), replicas


def refuses_beyond_its_seats(address: Any) -> None:
    """Open more connections than there are seats: who gets none hears so within its time."""
    extra = [shards_of(address, 0, Purpose.WATCH, timeout_secs=1.0) for _ in range(NUM_SEATS - NUM_REPLICAS + 1)]
    began_at = time.monotonic()
    for shards in extra[:-1]:
        shards.__enter__()
    with pytest.raises(RefusedError, match=f"this ps has {NUM_SEATS} connections, its maximum"):
        extra[-1].__enter__()
    assert time.monotonic() - began_at < START_SECS / 4
    for shards in extra:
        shards.close()


def test_sixty_four_replicas_on_one_ps() -> None:
    samples, replicas = run_load(LOAD_SECS)
    settled = samples[len(samples) // 5 :]
    grown = max(sample.rss_bytes for sample in settled) - settled[0].rss_bytes
    steps = sorted(done.steps for done in replicas.values())
    median = statistics.median(steps)
    print(f"\n{LOAD_SECS:g} s, load average {os.getloadavg()[0]:.1f}: {sum(steps) / LOAD_SECS:.0f} steps/s")
    print(f"memory of the ps: {settled[0].rss_bytes >> 10} KB, then {settled[-1].rss_bytes >> 10} KB at the end")
    print(f"steps of a replica: slowest {steps[0]}, median {median:g}, fastest {steps[-1]}")
    for name in ("pulls", "pushes"):
        counts = [getattr(done, name) for done in replicas.values()]
        print(f"{name}: {Latencies([sum(bucket) for bucket in zip(*counts, strict=True)]).to_facts()}")
    most = {name: max(getattr(s, name) for s in samples) for name in ("connections", "posted", "held_pushes")}
    print(f"most at a time: {most}")
    assert len(replicas) == NUM_REPLICAS
    assert samples[-1].global_step == sum(steps)
    assert steps[0] >= MIN_SHARE * median
    assert grown <= MAX_GROWTH_BYTES
    assert most["connections"] <= NUM_SEATS
    assert max(most["posted"], most["held_pushes"]) <= NUM_REPLICAS
    assert max(sample.tickets_given for sample in samples) <= NUM_REPLICAS
