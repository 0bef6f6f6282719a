"""Modules of a user, and a long-running process that cannot import them, like a Dask worker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.user_modules import Program, writing_modules

SERVER = """
import json, sys
from psflow.ps_runtime.shipping.pickles import unpickled
for line in sys.stdin:
    expression, pickles = json.loads(line)
    try:
        opened = [unpickled(bytes.fromhex(data)) for data in pickles]
        answer = repr(eval(expression))
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
"""

Elsewhere = Callable[..., str]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """Return what writes files of modules, imports or reloads them, and returns the first module."""
    yield from writing_modules(tmp_path / "program", monkeypatch)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    """Return what evaluates an expression over `opened`, the values of pickles, in another process."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        stdin, stdout = server.stdin, server.stdout

        def evaluate(expression: str, *pickles: bytes) -> str:
            print(json.dumps([expression, [data.hex() for data in pickles]]), file=stdin, flush=True)
            return str(json.loads(stdout.readline()))

        yield evaluate
        stdin.close()
