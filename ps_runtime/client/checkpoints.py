"""Provides the clients of the chief's saver, which makes checkpoints, and of the evaluator, which waits for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.client.shard_client import ShardClient, ShardClients
from psflow.ps_runtime.errors import BrokenPeerError, CheckpointError, RefusedError, TransportError, WaitTimeoutError
from psflow.ps_runtime.protocol.job_state import JobState, Snapshot
from psflow.ps_runtime.protocol.message import Kind, Message
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.variables import ModelSpec


class SavingClient:
    """The requests that only the chief may send to the ps.

    Notes
    -----
    Every call blocks. Not thread-safe.
    """

    def __init__(self, shards: ShardClients, model: ModelSpec, timeout_secs: float) -> None:
        self._shards = shards
        self._layouts = place(model, len(shards))
        self._timeout_secs = timeout_secs

    def initialize(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Give every shard the first values of its variables."""
        for index, layout in enumerate(self._layouts):
            arena = np.zeros(layout.nbytes, np.uint8)
            for piece, view in zip(layout.pieces, piece_views(layout, arena), strict=True):
                whole = values[piece.variable]
                view[...] = whole[piece.row_start : piece.row_stop] if piece.shape else whole
            message = Message(Kind.INITIALIZE, body=arena.data)
            self._shards[index].request(message, "take the first values", self._timeout_secs)

    def restore(self, step: int) -> None:
        """Have every shard restore its part of the checkpoint of `step`.

        Raises CheckpointError if one cannot.
        """
        with _about_checkpoint(step):
            self._shards.request_all(Message(Kind.RESTORE, step=step), "restore the checkpoint", self._timeout_secs)

    def job_state(self) -> JobState:
        """Return the state of the job."""
        reply = self._shards[0].request(Message(Kind.JOB_STATE), "report the state of the job", self._timeout_secs)
        return JobState.from_facts(reply.json())

    def open(self) -> int:
        """Let training begin; return the global_step that it begins at."""
        return self._shards[0].request(Message(Kind.OPEN), "open the job", self._timeout_secs).step

    def request_snapshot(self) -> None:
        """Request a snapshot as soon as the tickets given are used."""
        self._shards[0].request(Message(Kind.REQUEST_SNAPSHOT), "prepare a snapshot", self._timeout_secs)

    def await_snapshot(self, timeout_secs: float) -> tuple[Snapshot, bool]:
        """Wait until a snapshot is due and no ticket is out; return it, and whether it is the final one."""
        reply = self._shards[0].request(Message(Kind.AWAIT_SNAPSHOT), "announce the next snapshot", timeout_secs)
        return Snapshot.from_facts(reply.json()), reply.kind is Kind.FINAL_SNAPSHOT_DUE

    def snapshot(self, snapshot: Snapshot) -> None:
        """Have every shard copy `snapshot`, then let training continue."""
        body = json.dumps(snapshot.to_facts()).encode()
        self._shards.request_all(
            Message(Kind.SNAPSHOT, step=snapshot.step, body=body), "copy the snapshot", self._timeout_secs
        )
        self.resume(snapshot)

    def resume(self, snapshot: Snapshot) -> None:
        """Let training continue after `snapshot`."""
        self._shards[0].request(Message(Kind.RESUME, step=snapshot.step), "resume", self._timeout_secs)

    def write(self, step: int) -> list[dict[str, Any]]:
        """Have every shard write its copy of `step`; return the facts of each file.

        Raises CheckpointError if one of them fails: no space is left, or the store is not reachable.
        """
        message = Message(Kind.WRITE, step=step)
        with _about_checkpoint(step):
            replies = self._shards.request_all(message, "write the checkpoint", self._timeout_secs)
        return [reply.json() for reply in replies]

    def committed(self, step: int) -> None:
        """Report to the watchers that the checkpoint of `step` is committed."""
        self._shards[0].request(Message(Kind.COMMITTED, step=step), "announce the checkpoint", self._timeout_secs)

    def finish(self) -> None:
        """End the job: its final checkpoint is committed."""
        self._shards.request_all(Message(Kind.FINISH), "finish", self._timeout_secs)

    def statistics(self) -> dict[str, Any]:
        """Return the counters of ps-0, the job's included."""
        return self._shards[0].request(Message(Kind.STATISTICS), "report its counters", self._timeout_secs).json()


@contextmanager
def _about_checkpoint(step: int) -> Iterator[None]:
    """Turn a ps's refusal about a checkpoint into the matching error."""
    try:
        yield
    except RefusedError as error:
        if error.code in ("checkpoint", "storage"):
            raise CheckpointError(f"of step {step}", error.reason) from error
        raise


class WatchingClient:
    """Waits for news of ps-0. The files are authoritative; this only says when to look."""

    def __init__(self, shard: ShardClient, timeout_secs: float) -> None:
        self._shard = shard
        self._is_waiting = False
        self._is_gone = False
        self.transport = "none"
        try:
            shard.open(timeout_secs)
        except (BrokenPeerError, WaitTimeoutError):  # no ps answers, or its host is gone
            self._is_gone = True
        else:
            self.transport = shard.connection.transport

    def wait(self, seen_step: int, timeout_secs: float) -> bool:
        """Wait until there is a checkpoint later than `seen_step`, the job is finished, or the time is over.

        Return False, at once, if ps-0 is gone.
        """
        if self._is_gone:
            return False
        try:
            if not self._is_waiting:
                self._shard.send(Message(Kind.WATCH, step=seen_step))
                self._is_waiting = True
            self._shard.receive("send news", timeout_secs)
            self._is_waiting = False
        except WaitTimeoutError:
            pass
        except TransportError:
            self._is_gone = True
        return True

    def close(self) -> None:
        """End the connection. Idempotent."""
        self._shard.close()
