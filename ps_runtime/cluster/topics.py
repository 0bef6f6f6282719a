"""Hands the events of a topic to all who subscribe by one Dask client, which itself keeps one handler for a topic."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client

Handler = Callable[[tuple[float, Any]], None]
"""Takes an event with the scheduler's time, in the thread of the Dask client. Does not block."""

_handlers: WeakKeyDictionary[Client, dict[str, list[Handler]]] = WeakKeyDictionary()
_lock = threading.Lock()


def subscribe(client: Client, topic: str, handler: Handler) -> None:
    """Have `handler` called with each further event of a topic. Thread-safe.

    A handler that the user gave to Dask for this topic is not called any more.
    """
    with _lock:
        handlers = _handlers.setdefault(client, {}).setdefault(topic, [])
        handlers.append(handler)
        client.subscribe_topic(topic, partial(_pass_on, handlers))


def unsubscribe(client: Client, topic: str, handler: Handler) -> None:
    """Undo one call of `subscribe`, unless this was done before. Thread-safe."""
    with _lock:
        handlers = _handlers.get(client, {}).get(topic, [])
        if handler not in handlers:
            return
        handlers.remove(handler)
        if not handlers:
            del _handlers[client][topic]
            if client.status == "running":  # otherwise there is no scheduler
                client.unsubscribe_topic(topic)


def _pass_on(handlers: list[Handler], stamped: tuple[float, Any]) -> None:
    for handler in tuple(handlers):
        handler(stamped)
