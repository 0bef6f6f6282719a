"""Runs Cosmic Ray: it changes a copy of the checkout, runs the tests of the room, and restores the copy."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from cosmic_ray.config import ConfigDict, serialize_config
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkItem, WorkResult

from tests.mutation.copies import environment
from tests.mutation.outcomes import Mutant, Outcome
from tests.mutation.rooms import Room

PYTEST = ["python", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "--timeout=0"]
"""Cosmic Ray has a timeout of its own, for all tests of a room together."""


def measure(room: Room, copy: Path) -> float:
    """Run the tests of `room` without a mutant and return how many seconds they take.

    Raises
    ------
    RuntimeError
        If one of them fails.
    """
    start = time.monotonic()
    done = subprocess.run([*PYTEST, *room.tests], cwd=copy, env=environment(copy), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the tests of {room.name} fail without a mutant:\n{done.stdout[-3000:]}")
    return time.monotonic() - start


def try_all(room: Room, items: Sequence[WorkItem], copy: Path, timeout_secs: float) -> list[Outcome]:
    """Try the mutants `items` in `copy`, one after the other."""
    scratch = copy.with_name(f"{copy.name}-{room.name}")
    session, config = scratch.with_suffix(".sqlite"), scratch.with_suffix(".toml")
    session.unlink(missing_ok=True)
    config.write_text(_config(room, timeout_secs))
    with use_db(str(session), WorkDB.Mode.create) as db:
        db.add_work_items(items)
    command = ["cosmic-ray", "exec", str(config), str(session)]
    subprocess.run(command, cwd=copy, env=environment(copy), check=True)
    with use_db(str(session), WorkDB.Mode.open) as db:
        return [_outcome(room, item, result) for item, result in db.completed_work_items]


def _config(room: Room, timeout_secs: float) -> str:
    return serialize_config(
        ConfigDict(
            {
                "module-path": list(room.modules),
                "timeout": timeout_secs,
                "test-command": shlex.join([*PYTEST, *room.tests]),
                "distributor": {"name": "local"},
            }
        )
    )


def _outcome(room: Room, item: WorkItem, result: WorkResult) -> Outcome:
    if result.worker_outcome is not WorkerOutcome.NORMAL or result.test_outcome is TestOutcome.INCOMPETENT:
        raise RuntimeError(f"Cosmic Ray could not try {item.mutations[0]}: {result.output}")
    changed = [line for line in (result.diff or "").splitlines() if not line.startswith(("---", "+++"))]
    was, becomes = (" ".join(line[1:].strip() for line in changed if line.startswith(sign)).strip() for sign in "-+")
    mutant = Mutant(item.mutations[0].module_path.as_posix(), was, becomes)
    has_timed_out = result.output == "timeout"  # as Cosmic Ray says it
    return Outcome(room.name, mutant, result.test_outcome is TestOutcome.KILLED, has_timed_out)
