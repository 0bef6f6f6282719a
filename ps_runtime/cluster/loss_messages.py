"""Sends a ps the message that a replica is lost, before Dask gives up the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from distributed import Client

from psflow.ps_runtime.protocol.message import Incarnation

_inboxes: dict[str, SimpleQueue[Incarnation]] = {}
"""Of the ps that run in this process, by the topic of their job's events."""


class LossMessages:
    """Sends messages to the ps of a job without waiting: Dask tries for half a minute to reach a lost one."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._under_way: set[Future[None]] = set()

    def send(self, slot: str, incarnation: Incarnation) -> None:
        """Tell a ps that a replica is lost. Does not block; a ps that is gone gets nothing."""
        loop: Any = self._client.loop
        message = asyncio.run_coroutine_threadsafe(self._send(slot, incarnation), loop.asyncio_loop)
        self._under_way.add(message)
        message.add_done_callback(self._under_way.discard)

    def close(self) -> None:
        """Cancel messages under way. Idempotent."""
        for message in list(self._under_way):
            message.cancel()

    async def _send(self, slot: str, incarnation: Incarnation) -> None:
        with suppress(OSError):  # the connection to the scheduler breaks: the owner detects that by other means
            await self._client._run(take_loss, self._topic, incarnation, workers=[slot], wait=False, on_error="ignore")


async def take_loss(topic: str, incarnation: Incarnation) -> None:
    """Pass a message to the ps of a job, if it runs in this process. Dask does not await coroutines here."""
    if (inbox := _inboxes.get(topic)) is not None:
        inbox.put(incarnation)


@contextmanager
def receiving(topic: str, inbox: SimpleQueue[Incarnation]) -> Iterator[None]:
    """Deliver the messages for a ps of a job to `inbox` while the block lasts."""
    _inboxes[topic] = inbox
    try:
        yield
    finally:
        del _inboxes[topic]
