"""Runs a parameter server: serves one shard, and on ps-0 the job, until the job is over."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.files import Fence, open_fence
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.shards import load_shard, save_shard
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import PsflowError, StoppedError
from psflow.ps_runtime.protocol.message import Reply
from psflow.ps_runtime.roles.chief import take_up_end
from psflow.ps_runtime.roles.context import Pulse, RoleContext
from psflow.ps_runtime.roles.events import PsListening
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.roles.role_metrics import RoleSample
from psflow.ps_runtime.roles.streams import StreamReader
from psflow.ps_runtime.server.handler import JobKey, PsHandler
from psflow.ps_runtime.server.instructions import Refusal
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.roles import RoleId
from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.connecting import Transport, transport_named
from psflow.ps_runtime.transport.listeners import new_unix_name
from psflow.ps_runtime.transport.shared_memory import why_no_shared_memory
from psflow.ps_runtime.transport.socket_server import SocketServer
from psflow.ps_runtime.transport.waiting import awake_secs

LARGE_BYTES = 8 << 20
"""From this size on threads are worth their start, a tenth of a millisecond."""

NUM_THREADS = min(4, os.cpu_count() or 1)
"""One processor cannot use all the bandwidth of memory, a few can."""


def copy_arrays(pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> None:
    """Copy the second array of each pair into the first. Blocks; up to four threads copy large arrays."""
    num_parts = NUM_THREADS if sum(source.nbytes for _, source in pairs) >= LARGE_BYTES else 1

    def copy(part: int) -> None:
        for target, source in pairs:
            start, stop = (len(source) * edge // num_parts for edge in (part, part + 1))
            np.copyto(target[start:stop], source[start:stop])

    if num_parts == 1:
        copy(0)
        return
    with ThreadPoolExecutor(num_parts, thread_name_prefix="psflow-copy") as threads:
        list(threads.map(copy, range(num_parts)))


Written = Callable[[int, Mapping[str, Any] | Refusal], None]
"""Takes the step, and the facts of the written file or the reason of a failure."""


class ShardStorage:
    """Reads and writes the part of each checkpoint that one shard holds."""

    def __init__(
        self, job: JobSpec, index: int, written: Written, fence: Fence = open_fence, pulse: Pulse | None = None
    ) -> None:
        self._job = job
        self._index = index
        self._written = written
        self._pulse = pulse or Pulse()
        self._store = CheckpointStore(job.model_dir, fence=fence)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="psflow-writer")

    def load(self, step: int, shard: Shard) -> Mapping[str, Any]:
        """Fill the shard's snapshot from the checkpoint of `step`; return the facts of that snapshot. Blocks."""
        arrays = shard.snapshot_arrays
        with self._pulse.long_call(), CheckpointReader.pinned(self._store, step, f"ps-{self._index}") as reader:
            load_shard(reader, shard.layout, self._job.model, arrays.arena, arrays.slots, shard.snapshot_tables)
            return reader.manifest.job

    def write(self, step: int, shard: Shard) -> None:
        """Start to write the shard's snapshot; `written` is called at the end. Does not block."""
        self._writer.submit(self._write, step, shard)

    def close(self) -> None:
        """Wait for the file under way, and end the thread."""
        self._writer.shutdown(wait=True)

    def _write(self, step: int, shard: Shard) -> None:
        arrays = shard.snapshot_arrays
        what = f"ps-{self._index} could not write its part of checkpoint {step}"
        try:
            record = save_shard(
                self._store,
                step,
                self._job.num_ps,
                shard.layout,
                arrays.arena,
                arrays.slots,
                shard.snapshot_tables,
            )
        except StoppedError as error:  # this ps was lost: training rolls back, and saves again
            self._written(step, Refusal("lost", f"{what}: {error}"))
        except Exception as error:  # any error of a store: the saver waits for an answer
            reason = str(error) if isinstance(error, PsflowError) else f"{type(error).__name__}: {error}"
            self._written(step, Refusal("storage", f"{what}: {reason}"))
        else:
            self._written(step, record.to_facts())


SLICE_SECS = 0.2
MAX_TICK_SECS = 2 * SLICE_SECS
LOST_AFTER_SECS = 15.0
"""A replica whose connection broke may reconnect within this time; longer than replicas try to."""
LINGER_SECS = 10.0
"""How long a finished ps waits for all replicas to leave, also those that started too late to train."""
LOST_LINGER_SECS = 1.0
"""How long it waits for lost replicas, which may restart just now."""

Post = Callable[[Callable[[], Iterable[Reply]]], None]
"""Runs an event in the server's thread; thread-safe."""


class PsParts:
    """The parts of one ps, connected: handler, storage and, on ps-0, the reader of a stream."""

    def __init__(
        self,
        job: JobSpec,
        index: int,
        post: Post,
        allocate: Callable[[int], Arena] = Arena.private,
        fence: Fence = open_fence,
        pulse: Pulse | None = None,
        role: RoleId | None = None,
    ) -> None:
        layout = place(job.model, job.num_ps)[index]
        shard = Shard(
            layout,
            job.optimizers,
            job.model.tables,
            job.num_ps,
            arena=allocate(layout.nbytes),
            staleness_aware=job.config.consistency.staleness_aware,
            copy_arrays=copy_arrays,
        )
        self._storage = ShardStorage(job, index, lambda *news: post(lambda: self.handler.written(*news)), fence, pulse)
        self._stream: StreamReader | None = None
        job_requests = None
        if index == 0:
            if job.input.has_one_reader:
                self._stream = StreamReader(job, post, role)
            job_requests = JobRequests(_job_machine(job), self._stream, shard)
            if self._stream is not None:
                self._stream.job_requests = job_requests
        key = JobKey(job.job_id, job.token, job.model.digest, job.num_workers + 1, job.config.wire)
        self.handler = PsHandler(key, shard, self._storage, job_requests)

    def close(self) -> None:
        """End the threads. Idempotent; waits for files under way."""
        self._storage.close()
        if self._stream is not None:
            self._stream.close()


def _job_machine(job: JobSpec) -> Job:
    machine = Job(
        job.input,
        job.train_spec.max_steps,
        job.config.save_checkpoints_steps,
        job.finished_step,
        job.config.consistency,
        num_replicas=job.num_workers + 1,
        num_shards=job.num_ps,
        step_deadline=job.config.step_deadline,
    )
    if (end := take_up_end(job.model_dir)) is not None:
        machine.stop(end.reason)
    return machine


def run_ps(job: JobSpec, context: RoleContext, host: str, *, is_alone: bool) -> dict[str, Any]:
    """Serve shard `context.role.index` until the job is over; return the role's report."""
    transport = transport_named(job.transport)
    index, allocate = context.role.index, _arena_for(transport)
    parts = PsParts(job, index, lambda event: server.post(event), allocate, context.fence, context.pulse, context.role)
    arena = parts.handler.shard.arena
    server = SocketServer(
        parts.handler,
        tcp_host=host if _needs_tcp(transport, is_alone=is_alone) else None,
        unix=transport.unix != "never",
        certificate=job.certificate,
        arena=arena,
        takes_deposits=parts.handler.job_requests is None,
        max_connections=_max_connections(job.num_workers + 1),
        awake_secs=awake_secs(job.num_ps + job.num_workers + 1),
    )
    try:
        context.emit(PsListening(server.address))
        context.watch(lambda: _sample_of(server, parts.handler.shard))
        with context.pulse.rounds():
            _serve(server, parts.handler, context, num_replicas=job.num_workers + 1)
        return context.report("+".join(sorted(server.transports)), server.statistics() | parts.handler.statistics())
    finally:
        parts.close()
        server.close()
        arena.close()


def _sample_of(server: SocketServer, shard: Shard) -> RoleSample:
    counts = server.statistics()
    version = shard.version if shard.is_ready else None
    return RoleSample(-1 if version is None else version, counts["bytes_out"], counts["bytes_in"], version)


def _max_connections(num_replicas: int) -> int:
    """Return the number of connections that a ps allows: a replica may reconnect before its last connection breaks."""
    return max(256, 2 * num_replicas + 64)


def _needs_tcp(transport: Transport, *, is_alone: bool) -> bool:
    """Return whether any role may connect by TCP; otherwise the ps does not listen there."""
    if new_unix_name() is None:
        return True
    return transport.unix == "never" or (transport.unix == "maybe" and not is_alone)


def _arena_for(transport: Transport) -> Callable[[int], Arena]:
    """Return the function that makes the arena: in shared memory, where replicas may connect that way."""
    can_share = transport.sharing != "never" and not why_no_shared_memory()
    return Arena.shared if can_share else Arena.private


def _serve(server: SocketServer, handler: PsHandler, context: RoleContext, num_replicas: int) -> None:
    """Serve until the job is over; check deadlines periodically, not at each message."""
    absent_since: dict[int, float] = {}
    looked_at, look_at, finished_at = time.monotonic(), 0.0, math.inf
    while True:
        server.run_once(SLICE_SECS)
        now = time.monotonic()
        if handler.is_finished:
            finished_at = min(finished_at, now)
            if now - finished_at >= _linger_secs(handler, num_replicas):
                return
        if now >= look_at:
            look_at = now + SLICE_SECS
            context.pulse.beat()
            context.check()
            if handler.job_requests is not None:
                # during a longer gap this ps observed nothing: it was stopped, or busy itself
                secs, looked_at = min(now - looked_at, MAX_TICK_SECS), now
                server.post(partial(handler.job_requests.tick, secs))
                _declare_lost(server, handler.job_requests, absent_since)
                while not context.lost_replicas.empty():
                    server.post(partial(handler.job_requests.lost, *context.lost_replicas.get()))


def _linger_secs(handler: PsHandler, num_replicas: int) -> float:
    """Return how long a finished ps waits for the replicas that have not left."""
    if len(handler.left) >= num_replicas:
        return 0.0
    return LOST_LINGER_SECS if len(handler.left.union(handler.gone)) >= num_replicas else LINGER_SECS


def _declare_lost(server: SocketServer, job_requests: JobRequests, absent_since: dict[int, float]) -> None:
    now = time.monotonic()
    for connection in absent_since.keys() - job_requests.absent.keys():
        del absent_since[connection]
    for connection, key in job_requests.absent.items():
        if now - absent_since.setdefault(connection, now) >= LOST_AFTER_SECS:
            server.post(partial(job_requests.lost, *key))
