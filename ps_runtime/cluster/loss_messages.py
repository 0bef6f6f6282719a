"""The word of a job's owner to its ps that a replica is lost: Dask hears of it before a connection is given up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from distributed import Client

from psflow.ps_runtime.protocol.message import Life

__all__ = ["receiving", "send_loss", "take_loss"]

_inboxes: dict[str, SimpleQueue[Life]] = {}
"""Of the ps that run in this process, by the topic of their job's events."""


def send_loss(client: Client, topic: str, slot: str, life: Life) -> None:
    """Tell a ps that a replica is lost. Returns before it has heard; a ps that is not there any more hears nothing.

    Parameters
    ----------
    client : Client
        Of the cluster.
    topic : str
        Of the events of the job, which tells it from others.
    slot : str
        The Dask worker of the ps.
    life : Life
        Replica and incarnation.
    """
    client.run(take_loss, topic, life, workers=[slot], wait=False, on_error="ignore")


async def take_loss(topic: str, life: Life) -> None:
    """Hand a message on to the ps of a job, if it runs in this process. Dask waits for no end of a coroutine."""
    if (inbox := _inboxes.get(topic)) is not None:
        inbox.put(life)


@contextmanager
def receiving(topic: str, inbox: SimpleQueue[Life]) -> Iterator[None]:
    """Have `inbox` take the messages for a ps of a job, as long as the block lasts."""
    _inboxes[topic] = inbox
    try:
        yield
    finally:
        del _inboxes[topic]
