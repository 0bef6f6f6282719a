"""The environment of the start-up benchmark: databases, servers, and the measured command."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from psflow.ps_runtime.config.environment import child_environment
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import RoleFailedError, WaitTimeoutError

__all__ = ["ROOT", "Scene"]

ROOT = Path(__file__).parents[1]
PSFLOW = Path(sys.executable).with_name("psflow")
PROGRAM = "benchmarks.startup_parts"
TIMEOUT_SECS = 120.0
END_SECS = 60.0
POLL_SECS = 0.005


class Scene:
    """A directory with databases of Prefect and MLflow that are used again, for the time of a ``with`` block."""

    def __init__(self) -> None:
        self._resources = ExitStack()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self._directory = Path(self._resources.enter_context(TemporaryDirectory(prefix="psflow-bench-")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def start_servers(self, num_slots: int) -> None:
        """Start a Prefect server and a Dask cluster of so many workers, which stay until the scene ends."""
        process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, "servers", str(num_slots)],
            cwd=ROOT,
            env=_environment(self._directory),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._resources.callback(process.wait, END_SECS)
        assert process.stdin is not None
        assert process.stdout is not None
        self._resources.callback(process.stdout.close)
        self._resources.callback(process.stdin.close)
        line = process.stdout.readline()
        if not line:
            raise RoleFailedError("the servers", "they did not start")
        self._servers: Mapping[str, Any] = json.loads(line)

    def warm_start(self) -> float:
        """Return the seconds from the command to the first step, on the cluster and with the server that are up."""
        return self._start(self._warm_environment(), {"address": self._servers["address"]})

    def local_start(self) -> float:
        """Return the same where the command starts its own cluster and server."""
        return self._start(_environment(self._directory), {})

    def torch_start(self) -> float:
        """Return the same for a module of torch."""
        return self._start(_environment(self._directory), {}, "started_torch")

    def cold_start(self) -> float:
        """Return the same where there are no databases either."""
        return self._start(_environment(self._new_directory()), {})

    def part(self, name: str) -> float:
        """Return the seconds of a part of a cold start."""
        started = time.monotonic()
        arguments = ["-c", "pass"] if name == "python" else ["-m", PROGRAM, name]
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=_environment(self._new_directory()),
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_SECS,
        )
        secs = time.monotonic() - started
        if done.returncode:
            raise RoleFailedError(f"the part {name}", f"it ended with exit code {done.returncode}")
        return secs if name == "python" else float(json.loads(done.stdout.splitlines()[-1])["secs"])

    def command(self, arguments: Sequence[str]) -> float:
        """Return the seconds of a whole command, on the cluster and with the server that are up."""
        log = self._new_directory() / "log"
        started = time.monotonic()
        with log.open("w") as output:
            done = subprocess.run(
                [PSFLOW, *arguments, f"cluster.address={self._servers['address']}"],
                cwd=ROOT,
                env=self._warm_environment(),
                stdout=output,
                stderr=output,
                timeout=TIMEOUT_SECS,
            )
        secs = time.monotonic() - started
        if done.returncode:
            raise RoleFailedError(f"psflow {arguments[0]}", f"exit code {done.returncode}:\n{log.read_text()}")
        return secs

    def _warm_environment(self) -> dict[str, str]:
        environment: Mapping[str, str] = self._servers["environment"]
        return _environment(self._directory) | dict(environment)

    def _start(self, environment: Mapping[str, str], cluster: Mapping[str, Any], model: str = "started") -> float:
        directory = self._new_directory()
        told, log = directory / "first_step", directory / "log"
        (directory / "train.yaml").write_text(
            json.dumps(_configuration(directory, told, cluster, model))
        )  # JSON is YAML
        with log.open("w") as output:
            started = time.monotonic()
            process = subprocess.Popen(
                [PSFLOW, "train", str(directory / "train.yaml")],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=output,
            )
            try:
                deadline = Deadline(TIMEOUT_SECS)
                while not told.exists():
                    if process.poll() is not None:
                        raise RoleFailedError("psflow train", f"no step was done:\n{log.read_text()}")
                    if deadline.has_passed:
                        raise WaitTimeoutError("psflow train", "do a step", TIMEOUT_SECS)
                    time.sleep(POLL_SECS)
            finally:
                process.terminate()
                process.wait(END_SECS)
        return float(told.read_text()) - started

    def _new_directory(self) -> Path:
        directory = self._directory / str(next(self._numbers))
        directory.mkdir()
        return directory


def _environment(directory: Path) -> dict[str, str]:
    """Return the environment of processes that keep their databases in `directory`."""
    return child_environment(
        {"PREFECT_HOME": str(directory / "prefect"), "MLFLOW_TRACKING_URI": f"sqlite:///{directory / 'mlflow.db'}"}
    )


def _configuration(directory: Path, told: Path, cluster: Mapping[str, Any], model: str) -> dict[str, Any]:
    source = {"name": "benchmarks.models.mlp:input_fn"}
    return {
        "experiment": "startup",
        "seed": 1,
        "model": {"name": f"benchmarks.models.{model}:model_fn", "params": {"told": str(told)}},
        "input": {"train": source, "eval": source},
        "train": {"max_steps": 10_000_000},
        "eval": {"steps": 1},
        "cluster": {"ps": 1, "workers": 1, **cluster},
        "model_dir": str(directory / "model"),
    }
