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
from typing import Any, NamedTuple, Self

from psflow.ps_runtime.config.environment import child_environment
from psflow.ps_runtime.errors import RoleFailedError

__all__ = ["ROOT", "Command", "Scene"]

ROOT = Path(__file__).parents[1]
PSFLOW = Path(sys.executable).with_name("psflow")
TIMEOUT_SECS = 300.0
END_SECS = 60.0
MAX_STEPS = 300
NUMPY = {"name": "benchmarks.models.mlp:model_fn"}
TORCH = {"name": "benchmarks.models.torch_nets:model_fn", "params": {"network": "mlp"}}


class Command(NamedTuple):
    """Seconds of a ``psflow train``."""

    first_step: float
    """From the command to the first step."""
    tail: float
    """From the last step to the end of the command."""


class Scene:
    """A directory with databases of Prefect and MLflow that are used again, for the time of a ``with`` block."""

    def __init__(self) -> None:
        self._resources = ExitStack()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self.directory = Path(self._resources.enter_context(TemporaryDirectory(prefix="psflow-bench-")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def start_servers(self, num_slots: int) -> None:
        """Start a Prefect server and a Dask cluster of so many workers, which stay until the scene ends."""
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.startup_servers", str(num_slots)],
            cwd=ROOT,
            env=_environment(self.directory),
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

    def warm(self) -> Command:
        """Train on the cluster and with the server that are up."""
        environment = _environment(self.directory) | dict(self._servers["environment"])
        return self._start(environment, {"address": self._servers["address"]}, NUMPY)

    def local(self) -> Command:
        """Train with a cluster and a server of the command."""
        return self._start(_environment(self.directory), {}, NUMPY)

    def torch(self) -> Command:
        """Train a module of torch, with a cluster and a server of the command."""
        return self._start(_environment(self.directory), {}, TORCH)

    def cold(self) -> Command:
        """Train where there are no databases either."""
        return self._start(_environment(self._new_directory()), {}, NUMPY)

    def imports(self) -> float:
        """Return the seconds of a Python process that imports the modules of the command, and collects no garbage."""
        program = "import gc; gc.disable(); import mlflow, psflow.flows.train; gc.freeze()"
        return self.run([sys.executable, "-c", program])[0]

    def train(self, *arguments: str | Path) -> tuple[float, dict[str, Any]]:
        """Train with a cluster and a server of the command; return its seconds and its answer."""
        return self._train(_environment(self.directory), *arguments)

    def run(self, command: Sequence[str | Path]) -> tuple[float, str]:
        """Return the seconds of a command that uses the databases, and its output."""
        return self._run(command, _environment(self.directory))

    def _start(self, environment: dict[str, str], cluster: Mapping[str, Any], model: Mapping[str, Any]) -> Command:
        directory = self._new_directory()
        conf = directory / "train.yaml"
        conf.write_text(json.dumps(_configuration(directory, cluster, model)))  # JSON is YAML
        secs, answer = self._train(environment, conf, "--timings")
        ends = {row["phase"]: row["at_secs"] for row in answer["timings"]}
        return Command(ends["first step"], secs - ends["last step"])

    def _train(self, environment: dict[str, str], *arguments: str | Path) -> tuple[float, dict[str, Any]]:
        secs, output = self._run([PSFLOW, "train", *arguments, "--json"], environment)
        answer: dict[str, Any] = json.loads(output.splitlines()[-1])
        return secs, answer

    def _run(self, command: Sequence[str | Path], environment: dict[str, str]) -> tuple[float, str]:
        """Return the seconds of a command, and its output."""
        started = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECS)
        secs = time.monotonic() - started
        if done.returncode:
            raise RoleFailedError(str(command[0]), f"it ended with exit code {done.returncode}:\n{done.stderr}")
        return secs, done.stdout

    def _new_directory(self) -> Path:
        directory = self.directory / str(next(self._numbers))
        directory.mkdir()
        return directory


def _environment(directory: Path) -> dict[str, str]:
    """Return the environment of processes that keep their databases in `directory`."""
    return child_environment(
        {"PREFECT_HOME": str(directory / "prefect"), "MLFLOW_TRACKING_URI": f"sqlite:///{directory / 'mlflow.db'}"}
    )


def _configuration(directory: Path, cluster: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    source = {"name": "benchmarks.models.mlp:input_fn"}
    return {
        "experiment": "startup",
        "seed": 1,
        "model": model,
        "input": {"train": source, "eval": source},
        "train": {"max_steps": MAX_STEPS},
        "eval": {"steps": 1},
        "cluster": {"ps": 1, "workers": 1, **cluster},
        "model_dir": str(directory / "model"),
    }
