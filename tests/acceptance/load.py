"""One ps in a process of its own, and light replicas, threads of a few processes, that pull and push all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import psutil

from psflow.ps_runtime.client.checkpoints import SavingClient
from psflow.ps_runtime.client.shard_client import Identity, ShardClients
from psflow.ps_runtime.client.training import TrainingClient
from psflow.ps_runtime.errors import StoppedError
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.protocol.message import Purpose
from psflow.ps_runtime.roles import ps as role
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.server.handler import JobKey, PsHandler
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec
from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.listeners import Address
from psflow.ps_runtime.transport.socket_server import SocketServer
from tests.ps_runtime.rules import rules_of

SIZE = 16_384
MODEL = ModelSpec((VariableSpec("w", (SIZE,), "float32", 0),), (GradientDescent(learning_rate=1.0).config(),))
SAMPLE_SECS = 1.0
START_SECS = 120.0


@dataclass(frozen=True)
class Sample:
    """What a ps holds at some time: memory, and what could pile up."""

    at: float
    rss_bytes: int
    global_step: int
    connections: int
    posted: int
    held_pushes: int
    tickets_given: int


@dataclass(frozen=True)
class Replica:
    """What a replica has done."""

    steps: int
    pulls: Sequence[int]
    pushes: Sequence[int]
    """As `Latencies.counts`."""


def serve(pipe: Connection, num_replicas: int, num_seats: int) -> None:
    """Be ps-0 until somebody writes to `pipe`; send the address first, and the samples at the end."""
    layout = place(MODEL, 1)[0]
    arena = Arena.shared(layout.nbytes)
    shard = Shard(layout, rules_of(MODEL), arena=arena)
    job = Job(InputSpec(1000, num_epochs=None), None, None, num_replicas=num_replicas)
    requests = JobRequests(job, None, shard)
    handler = PsHandler(JobKey("job", "token", MODEL.digest, num_replicas), shard, _NoStorage(), requests)
    server = SocketServer(handler, None, arena=arena, max_connections=num_seats)
    samples: list[Sample] = []

    def check() -> None:
        now, is_over = time.monotonic(), pipe.poll()
        if is_over or not samples or now - samples[-1].at >= SAMPLE_SECS:
            samples.append(_sample(now, server, handler))
        if is_over:
            raise StoppedError("ps-0", "the load is over")

    try:
        pipe.send(server.address)
        role._serve(server, handler, RoleContext(RoleId(Role.PS, 0), 1, check, print), num_replicas)
    except StoppedError:
        pipe.send(samples)
    finally:
        server.close()


def _sample(now: float, server: SocketServer, handler: PsHandler) -> Sample:
    of_server, of_handler = server.statistics(), handler.statistics()
    job = of_handler["job"]
    return Sample(
        now,
        psutil.Process().memory_info().rss,
        job["global_step"],
        of_server["connections"],
        len(server._posted),
        of_handler["shard"]["held_pushes"],
        job["tickets_given"],
    )


class _NoStorage:
    """There are no checkpoints."""

    def load(self, step: int, shard: Shard) -> Mapping[str, Any]:
        raise AssertionError("nothing is saved in this job")

    def write(self, step: int, shard: Shard) -> None:
        raise AssertionError("nothing is saved in this job")


def shards_of(
    address: Address, replica: int, purpose: Purpose = Purpose.TRAIN, timeout_secs: float = START_SECS
) -> Any:
    """Return the clients of the ps, to be opened."""
    identity = Identity("job", "token", MODEL.digest, f"{purpose}-{replica}", purpose, replica, 1)
    dial = partial(connect, address, "auto", peer="ps-0")
    return ShardClients([lambda secs: dial(timeout_secs=secs)], identity, lambda: None, timeout_secs)


def open_job(address: Address) -> None:
    """Give the variables their values, and let training begin."""
    with shards_of(address, 0, Purpose.SAVE) as shards:
        saving = SavingClient(shards, MODEL, START_SECS)
        saving.initialize({"w": np.zeros(SIZE, np.float32)})
        saving.open()


def train(pipe: Connection, address: Address, replicas: Sequence[int]) -> None:
    """Be some replicas: say when all are connected, train from the next word on to the one after, then say it all."""
    begins, is_over = threading.Event(), threading.Event()
    ready = threading.Barrier(len(replicas) + 1)
    done: dict[int, Replica] = {}

    def run(replica: int) -> None:
        with shards_of(address, replica) as shards:
            client = TrainingClient(shards, MODEL, START_SECS)
            gradient = {"w": np.full(SIZE, 1e-6, np.float32)}
            ready.wait()
            begins.wait()
            client.next_grant()
            steps = 0
            while not is_over.is_set():
                client.pull()
                client.push(gradient, [1.0], 1)
                steps += 1
            done[replica] = Replica(steps, client.pulls.counts, client.pushes.counts)

    threads = [threading.Thread(target=run, args=(replica,)) for replica in replicas]
    for thread in threads:
        thread.start()
    ready.wait()
    pipe.send("ready")
    pipe.recv()
    begins.set()
    pipe.recv()
    is_over.set()
    for thread in threads:
        thread.join()
    pipe.send(done)
