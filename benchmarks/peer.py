"""The peer, TensorFlow Estimator: its installation, and its jobs as systems."""

from __future__ import annotations

import functools
import json
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.systems.program import Command, ProgramSystem
from benchmarks.workloads import Workload
from psflow.ps_runtime.config.environment import bench_peer_python
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.specs.consistency import Sync

__all__ = ["LOCAL", "Peer", "environments_of", "find_peer", "peer_arguments", "peer_system"]

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "benchmarks" / "peers" / "tf_estimator.py"
MADE_BY_MAKE = ROOT / ".venv-peers" / "bin" / "python"
WANTED = "2.15"
ASK = "import importlib.metadata as m; print(m.version('tensorflow-estimator'))"
ASK_TIMEOUT_SECS = 30.0
LOCAL = "local"
"""Name of the role of a job without ps."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An interpreter that has TensorFlow Estimator."""

    python: str
    version: str


@functools.cache
def find_peer() -> Peer | None:
    """Return the peer that ``PSFLOW_BENCH_PEER_PYTHON`` names or ``make bench-peers`` has made; None: neither is there.

    Raises
    ------
    UsageError
        If the interpreter that is named or made has no TensorFlow Estimator 2.15.
    """
    named = bench_peer_python()
    if named is None and not MADE_BY_MAKE.exists():
        return None
    python = named or str(MADE_BY_MAKE)
    try:
        asked = subprocess.run([python, "-c", ASK], capture_output=True, text=True, timeout=ASK_TIMEOUT_SECS)
        version = asked.stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        version = str(error)
    if not version.startswith(WANTED):
        origin = "PSFLOW_BENCH_PEER_PYTHON names" if named else "make bench-peers has made"
        raise UsageError(
            (
                f"{origin} {python}, which should have TensorFlow Estimator {WANTED}, but has "
                f"{version or 'none'}; it needs Python 3.11 and: pip install tensorflow-cpu==2.15.1",
            )
        )
    return Peer(python, version)


def peer_system(peer: Peer, workload: Workload, case: Case, *, is_local: bool = False) -> ProgramSystem:
    """Return a job of the peer like that of a case; `is_local`: in one process without any ps.

    Where TensorFlow has nothing like the consistency of the case, its asynchronous one stands for it.
    """
    extra = ["--sync-replicas", str(case.num_replicas)] if case.consistency == Sync.name else []
    name = f"TensorFlow {case.key}" + (" without ps" if is_local else "")
    environments = {LOCAL: {}} if is_local else environments_of(case.num_ps, case.num_replicas)
    training = [role for role in environments if not role.startswith("ps")]

    def commands(directory: Path) -> dict[str, Command]:
        workload.save_arrays(str(directory / "records.npz"))
        shared = [*peer_arguments(peer, workload, directory / "records.npz", directory / "model"), *extra]
        return {role: Command(shared, environment) for role, environment in environments.items()}

    return ProgramSystem(name, commands, counting=training[:1], first_steps=training)


def peer_arguments(peer: Peer, workload: Workload, data: Path, model_dir: Path) -> list[str]:
    """Return the command line of every role of a job."""
    return [
        *(peer.python, str(PROGRAM), workload.model),
        *("--data", str(data), "--batch-size", str(workload.module.BATCH_SIZE)),
        *("--model-dir", str(model_dir), "--report-steps", str(workload.report_steps)),
        *("--params", json.dumps(dict(workload.params))),
    ]


def environments_of(num_ps: int, num_replicas: int) -> dict[str, dict[str, str]]:
    """Return the TF_CONFIG of each role, by its name, for a cluster on free ports of this machine.

    Examples
    --------
    >>> list(environments_of(num_ps=1, num_replicas=3))
    ['ps-0', 'chief-0', 'worker-0', 'worker-1']
    """
    sizes = {"ps": num_ps, "chief": 1, "worker": num_replicas - 1}
    ports = iter(free_ports(sum(sizes.values())))
    cluster = {role: [f"127.0.0.1:{next(ports)}" for _ in range(size)] for role, size in sizes.items() if size}
    return {
        f"{role}-{index}": {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})}
        for role, addresses in cluster.items()
        for index in range(len(addresses))
    }


def free_ports(number: int) -> list[int]:
    """Return ports on loopback that are free now, each another one."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
