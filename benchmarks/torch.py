"""Torch modules on the ps, beside plain torch and DistributedDataParallel."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from benchmarks.cases import Case
from benchmarks.peer import free_ports
from benchmarks.rows import Row
from benchmarks.settings import Settings
from benchmarks.systems.program import Command, ProgramSystem
from benchmarks.throughput import Contest, measure_contests
from benchmarks.workloads import Workload
from psflow.ps_runtime.cluster.fork_server import ENVIRONMENT
from psflow.ps_runtime.errors import UsageError

__all__ = ["CLAIM", "measure"]

CLAIM = """\
Modules of torch, batch 100, gradient descent, data in memory, one thread in each process. The limit is a plain loop of
torch in each replica, the peer DistributedDataParallel with gloo, both at the gradients of all their processes. A
convolutional network makes at least 0.9 of the steps of plain torch with one replica; the network 784-100-10 at least
the gradients of DistributedDataParallel with two. The embedding is a sparse table of 10,000,000 x 16, batches of
1024 x 26 ids."""

MLP = Workload("torch_nets", report_steps=50, slice_secs=1.0, params={"network": "mlp"})
EMBEDDING = Workload("torch_nets", report_steps=2, slice_secs=3.0, params={"network": "embedding"})
CNN = Workload("torch_nets", report_steps=5, slice_secs=3.0, params={"network": "cnn"})


def ddp(workload: Workload, case: Case) -> ProgramSystem:
    """Return a job of DistributedDataParallel with as many processes as the case has replicas."""
    number = case.num_replicas
    [port] = free_ports(1)
    arguments = [sys.executable, "-m", "benchmarks.peers.torch_ddp", workload.params["network"]]
    shared = ENVIRONMENT | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(number)}
    commands = {
        f"rank-{rank}": Command([*arguments, str(workload.report_steps)], shared | {"RANK": str(rank)})
        for rank in range(number)
    }
    return ProgramSystem(f"DDP {case.num_replicas}", lambda _: commands, counting=list(commands))


def measure(settings: Settings) -> list[Row]:
    """Measure each network with one and two replicas, asynchronous, and the dense ones synchronous.

    Raises
    ------
    UsageError
        If torch is not installed.
    """
    if find_spec("torch") is None:
        raise UsageError(("torch is not installed; make torch installs it in a checkout",))
    contests = [
        Contest(workload, [Case("async", "shm", num_replicas=number, variant=workload.params["network"])], peer=ddp)
        for workload in (MLP, CNN, EMBEDDING)
        for number in (1, 2)
    ]
    sync = [
        Contest(workload, [Case("sync", "shm", variant=workload.params["network"])], peer=ddp)
        for workload in (MLP, CNN)
    ]
    return measure_contests([*contests, *sync], settings)
