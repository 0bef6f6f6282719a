"""What another user of the machine tries: a program that becomes `nobody`, and says what it got.

Run as root with a JSON object on standard input: `tcp`, ports; `unix`, names of abstract sockets; `pids`; `folders`;
`words`, which are secrets. The answer is a JSON list of sentences, a line on standard output.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import pwd
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import distributed.comm.tcp
import distributed.protocol.serialize  # noqa: F401
from distributed.core import connect
from websockets.exceptions import WebSocketException
from websockets.sync import client
from websockets.typing import Subprotocol

from psflow.ps_runtime.client.shard_client import Identity
from psflow.ps_runtime.cluster.own_security import own_security
from psflow.ps_runtime.errors import PsflowError
from psflow.ps_runtime.protocol.message import HEADER, Kind, Message, Purpose, decode_header, encode_header

SECS = 5.0
READ = (
    *("/", "/status", "/health", "/metrics", "/json/counts.json", "/docs"),
    *("/psflow-login", "/ui-settings", "/api/health", "/api/ready", "/api/admin/version"),
)
ASKED = ("/api/flow_runs/filter", "/api/deployments/filter", "/api/2.0/mlflow/runs/search")
PAGES = (*(("GET", path) for path in READ), *(("POST", path) for path in ASKED))
SOCKETS = ("/api/events/in", "/api/events/out")
PREFECT = Subprotocol("prefect")
TOKEN = "0" * 32


def become_nobody() -> None:
    user = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)


def of_http(port: int) -> Iterator[str]:
    """Ask for pages and for an API, with the passwords that people forget to change."""
    for method, path in PAGES:
        for headers in ({}, {"Authorization": "Basic cHNmbG93OnBzZmxvdw=="}):
            with (
                suppress(OSError, http.client.HTTPException),
                closing(http.client.HTTPConnection("127.0.0.1", port, timeout=SECS)) as connection,
            ):
                connection.request(method, path, body=None if method == "GET" else "{}", headers=headers)
                answer = connection.getresponse()
                if answer.status != 401 or answer.read():
                    yield f"HTTP {method} {path} at {port}: {answer.status}"


def of_websocket(port: int) -> Iterator[str]:
    """Open the streams of events in Prefect's old way, which asks nothing; then in its new way, without a password."""
    for path in SOCKETS:
        address = f"ws://127.0.0.1:{port}{path}"
        with (
            suppress(OSError, WebSocketException),
            client.connect(address, open_timeout=SECS, close_timeout=SECS, proxy=None),
        ):
            yield f"WebSocket {path} at {port}: open"
        for token in (None, "psflow:psflow"):
            with (
                suppress(OSError, WebSocketException),
                client.connect(
                    address, subprotocols=[PREFECT], open_timeout=SECS, close_timeout=SECS, proxy=None
                ) as connection,
            ):
                connection.send(json.dumps({"type": "auth", "token": token}))
                yield f"WebSocket {path} at {port}: {connection.recv(timeout=SECS)!r}"


def of_dask(port: int) -> Iterator[str]:
    """Ask a scheduler, a nanny or a worker who it is; with TLS, show a certificate of one's own."""

    async def identity(scheme: str, options: Mapping[str, Any]) -> Any:
        comm = await connect(f"{scheme}://127.0.0.1:{port}", timeout=SECS, **options)
        try:
            await comm.write({"op": "identity", "reply": True})
            return await comm.read()
        finally:
            comm.abort()

    ways = {"tcp": {}, "tls": own_security().get_connection_args("client")}
    for scheme, options in ways.items():
        with suppress(Exception):  # what is no Dask confuses Dask in many ways
            answer = asyncio.run(asyncio.wait_for(identity(scheme, options), SECS))
            yield f"Dask at {scheme}://127.0.0.1:{port}: {answer}"


def of_wire(sock: socket.socket, where: str) -> Iterator[str]:
    """Introduce oneself to a ps with a token that one does not know, then ask for the parameters."""
    hello = Identity("digits", TOKEN, 0, "chief-0", Purpose.WATCH).hello()
    body = bytes(hello.body)
    with closing(sock), suppress(OSError, PsflowError):  # it does not answer, or speaks another protocol
        sock.settimeout(SECS)
        sock.sendall(encode_header(hello, len(body)) + body + encode_header(Message(Kind.PULL), 0))
        answer, _, _, _ = socket.recv_fds(sock, HEADER.size, 4)
        if len(answer) == HEADER.size and decode_header(answer)[0].kind is not Kind.REFUSED:
            yield f"the wire protocol at {where}: {answer!r}"


def of_tcp(port: int) -> Iterator[str]:
    yield from of_http(port)
    yield from of_websocket(port)
    yield from of_dask(port)
    with suppress(OSError):
        yield from of_wire(socket.create_connection(("127.0.0.1", port), timeout=SECS), str(port))


def of_unix(name: str) -> Iterator[str]:
    sock = socket.socket(socket.AF_UNIX)
    with suppress(OSError):
        sock.connect("\0" + name)
        yield from of_wire(sock, name)


def of_process(pid: int, words: Sequence[str]) -> Iterator[str]:
    """Look at what the system tells of a process: others may read its command line, and nothing else."""
    looks: dict[str, Callable[[Path], object]] = {
        "environ": Path.read_bytes,
        "maps": Path.read_bytes,
        "fd": lambda path: list(path.iterdir()),
        "mem": lambda path: path.open("r+b").close(),
        "cmdline": lambda path: [word for word in words if word.encode() in path.read_bytes()],
    }
    for name, look in looks.items():
        with suppress(OSError):
            if look(Path(f"/proc/{pid}/{name}")):
                yield f"/proc/{pid}/{name}"
            elif name == "mem":
                yield f"/proc/{pid}/mem"


def of_folder(folder: str, words: Sequence[str]) -> Iterator[str]:
    """Look for secrets in all files that can be read, and for files that can be written."""
    for directory, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with suppress(OSError):
                content = Path(path).read_bytes()
                if any(word.encode() in content for word in words):
                    yield f"a secret in {path}"
            if os.access(path, os.W_OK):
                yield f"{path} can be written"


def got(told: Mapping[str, Any]) -> list[str]:
    words = told["words"]
    with ThreadPoolExecutor(16) as threads:
        tried = [
            *threads.map(lambda port: list(of_tcp(port)), told["tcp"]),
            *threads.map(lambda name: list(of_unix(name)), told["unix"]),
        ]
    tried += [list(of_process(pid, words)) for pid in told["pids"]]
    tried += [list(of_folder(folder, words)) for folder in told["folders"]]
    return [sentence for sentences in tried for sentence in sentences]


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    become_nobody()
    print(json.dumps(got(asked)))
