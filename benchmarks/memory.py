"""Memory of each role during training."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial

from benchmarks.cases import Case
from benchmarks.limit import limit_system
from benchmarks.peer import find_peer, peer_system
from benchmarks.processes import pss_bytes
from benchmarks.rounds import alternate, at_work
from benchmarks.rows import Row, Samples
from benchmarks.settings import Settings
from benchmarks.systems.base import System
from benchmarks.systems.product import CHIEF, ProductSystem
from benchmarks.workloads import Workload

__all__ = ["CLAIM", "measure", "measure_growth"]

CLAIM = """\
Proportional set size of each role during training, 1 ps, 2 replicas: on the MLP 784-100-10, whose arena, slots and
snapshot buffer are less than 1 MB together, a ps or a replica takes at most 180 MB. A row with 10M shows the whole
memory of a process that serves or trains 10 million parameters. The limit is the bare loop: Python, numpy and
the arrays."""

WORKLOADS = {
    "mlp": Workload("mlp", report_steps=50, slice_secs=0.5),
    "10M": Workload("dense", report_steps=2, slice_secs=1.0, params={"num_parameters": 10_000_000}),
}
ROLES = ("ps-0", "chief-0", "worker-0", "evaluator-0")
LOOP = "loop-0"
MEGABYTE = 2**20
FEW_STEPS, GROWN_STEPS = 1000, (10_000, 100_000, 1_000_000)
TIMEOUT_SECS = 1800.0

Sizes = dict[str, float]
"""Megabytes of each role."""


def measure(settings: Settings) -> list[Row]:
    """Measure every role of two workloads, in turn with the roles of the peer."""
    rows: list[Row] = []
    for variant, workload in WORKLOADS.items():
        case = Case("async", "shm", variant=variant)
        wanted = [role for role in ROLES if settings.wants(f"{case.key}/{role}")]
        if wanted and not (settings.quick and rows):
            rows += _measure(workload, case, settings, wanted)
    return rows


def _measure(workload: Workload, case: Case, settings: Settings, roles: list[str]) -> list[Row]:
    product, limit = ProductSystem(workload, case), limit_system(workload, 1)
    found = None if settings.quick else find_peer()
    peer = None if found is None else peer_system(found, workload, case)
    systems = [limit, product] if peer is None else [peer, limit, product]
    secs = settings.slice_secs(workload.slice_secs)
    sizes = alternate(systems, settings.pairs, lambda system: _sizes(system, secs))
    return [
        Row.of(
            f"{case.key}/{role}",
            "MB",
            Samples([size[role] for size in sizes[product.name]]),
            _samples(sizes[limit.name], LOOP),
            None if peer is None else _samples(sizes[peer.name], role),
            less_is_better=True,
        )
        for role in roles
    ]


def measure_growth(settings: Settings) -> list[Row]:
    """Measure every role of one job after more and more steps."""
    case = Case("async", "shm", variant="memory")
    keys = {(steps, role): f"{case.key}/{role}/{steps:,}-steps" for steps in GROWN_STEPS for role in ROLES}
    wanted = {key: name for key, name in keys.items() if settings.wants(name)}
    if not wanted:
        return []
    sizes: dict[int, Sizes] = {}
    with closing(ProductSystem(WORKLOADS["mlp"], case)) as system:
        system.start()
        for steps in (FEW_STEPS, *GROWN_STEPS):
            with at_work(system):
                system.await_work(partial(_has_made, system, steps), TIMEOUT_SECS)
            sizes[steps] = {role: pss_bytes(pid) / MEGABYTE for role, pid in system.roles.items()}
    few = sizes[FEW_STEPS]
    return [
        Row.of(name, "MB", Samples([sizes[steps][role]]), Samples([few[role]]), less_is_better=True)
        for (steps, role), name in wanted.items()
    ]


def _has_made(system: System, steps: int) -> bool:
    return system.progress.reports(CHIEF)[-1][0] >= steps


def _sizes(system: System, secs: float) -> Sizes:
    with at_work(system):
        time.sleep(secs)
    return {role: pss_bytes(pid) / MEGABYTE for role, pid in system.roles.items()}


def _samples(sizes: list[Sizes], role: str) -> Samples | None:
    return Samples([size[role] for size in sizes]) if role in sizes[0] else None
