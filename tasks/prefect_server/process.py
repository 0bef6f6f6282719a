"""Program of the local Prefect server, started as a separate process by `psflow.tasks.prefect_server.api`.

It serves on an inherited listening socket, and ends when its standard input does: its parent has closed it or ended.
It ends at once if an API is configured, which the parent will use. With the argument ``stays`` it does neither, and
serves until it is terminated.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

GRACE_SECS = 5


class StopSignal:
    """Stops the server at the end of standard input, even before the server runs."""

    def __init__(self) -> None:
        self._stop: Callable[[], None] = _leave
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        sys.stdin.buffer.read()
        self._stop()

    def stop_with(self, server: object) -> None:
        """Stop this server gracefully at the signal: pending data are written to the database first."""
        self._stop = lambda: setattr(server, "should_exit", True)


def _leave() -> None:
    os._exit(0)


def is_named() -> bool:
    """Return whether the environment or the active Prefect profile names an API."""
    from prefect.settings import get_current_settings

    return get_current_settings().api.url is not None


@contextmanager
def migration_lock() -> Iterator[None]:
    """Let one server at a time create or migrate the database: two concurrent starts would break it."""
    from prefect.settings import get_current_settings

    home = get_current_settings().home
    home.mkdir(parents=True, exist_ok=True)
    folder = os.open(home, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@contextmanager
def statements_in_place() -> Iterator[None]:
    """Run each SQLite statement in the awaiting thread during a block.

    A new database takes 34,000 statements, and a thread switch for each would double the time.
    """
    from aiosqlite import core

    kind: Any = core.Connection
    through_a_thread = kind._execute

    async def in_place(connection: Any, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except sqlite3.ProgrammingError:  # an in-memory database, for example, works in its own thread only
            return await through_a_thread(connection, function, *args, **options)

    kind._execute = in_place
    try:
        yield
    finally:
        kind._execute = through_a_thread


async def recorded(timeout_secs: float) -> None:
    """Wait until the services have processed all received events; queued ones would be dropped."""
    from prefect.server.utilities.messaging.memory import Topic

    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_secs):
            while any(s._queue.qsize() for s in Topic.by_name("events")._subscriptions):
                await asyncio.sleep(0.02)


def serve(listener: socket.socket, stop: StopSignal | None) -> None:
    """Serve on `listener` until stopped or terminated."""
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    from psflow.tasks.basic_auth import BasicAuth

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            with migration_lock(), statements_in_place():
                await super().startup(sockets)
            gc.enable()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await recorded(GRACE_SECS)
            await super().shutdown(sockets)

    app: Any = create_app(final=True)
    auth_string = get_current_settings().server.api.auth_string
    if auth_string is not None:
        app = BasicAuth(app, auth_string.get_secret_value(), checks_websockets=True)  # with Prefect's own password
    server = Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=GRACE_SECS))
    if stop is not None:
        stop.stop_with(server)
    server.run(sockets=[listener])


def main() -> None:
    """Run as ``python -P process.py LISTENER_FD [stays]``."""
    stop = None if "stays" in sys.argv else StopSignal()
    gc.disable()  # until it serves: collections would take a fifth of the start
    if stop is None or not is_named():
        serve(socket.socket(fileno=int(sys.argv[1])), stop)
    _leave()  # all data are written; finalizing the interpreter would take another second


if __name__ == "__main__":
    main()
