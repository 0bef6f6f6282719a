"""Steps per second of psflow, its limit and its peer on one workload, in alternating measurements."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.cases import Case
from benchmarks.limit import limit_system
from benchmarks.peer import find_peer, peer_system
from benchmarks.rounds import Slice, alternate, samples_of, step_rate
from benchmarks.rows import Row
from benchmarks.settings import Settings
from benchmarks.systems.base import System
from benchmarks.systems.product import ProductSystem
from benchmarks.workloads import Workload

__all__ = ["Contest", "chosen", "measure_contests"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Contest:
    """Cases that have a limit and a peer in common, and are measured in the same rounds.

    Parameters
    ----------
    workload : Workload
        What is trained: a model, its batches and their sizes.
    cases : sequence of Case
        With the same number of ps and of replicas.
    peer_is_local : bool
        The peer trains in one process, without any ps.
    peer : callable ``(workload, case) -> System``, optional
        The peer; default: TensorFlow Estimator, where it is installed. Its steps are gradients.
    has_peer : bool
        Whether there is a peer.
    """

    workload: Workload
    cases: Sequence[Case]
    peer_is_local: bool = False
    peer: Callable[[Workload, Case], System] | None = None
    has_peer: bool = True


def measure_contests(contests: Iterable[Contest], settings: Settings) -> list[Row]:
    """Measure one contest after the other; return a row for each case."""
    return [row for contest in chosen(contests, settings) for row in _measure(contest, settings)]


def chosen(contests: Iterable[Contest], settings: Settings) -> list[Contest]:
    """Return the contests that are left of the cases that are wanted."""
    left = []
    for contest in contests:
        cases = [case for case in contest.cases if settings.wants(case.key)]
        if cases:
            left.append(replace(contest, cases=cases))
    if settings.quick and left:
        return [replace(left[0], cases=left[0].cases[:1])]
    return left


def _measure(contest: Contest, settings: Settings) -> list[Row]:
    slices: dict[str, list[Slice]] = defaultdict(list)
    limit, peer = "", ""
    products: dict[str, Case] = {}
    for number, num_rounds in enumerate(settings.rounds):
        limit_of, peer_of, products_of = _systems(contest, settings)
        limit, peer = limit_of.name, "" if peer_of is None else peer_of.name
        products = {system.name: case for system, case in zip(products_of, contest.cases, strict=True)}
        systems = [*([] if peer_of is None else [peer_of]), limit_of, *products_of]
        names = ", ".join(system.name for system in systems)
        logger.info("start %d of %d, %d rounds: %s", number + 1, len(settings.rounds), num_rounds, names)
        secs = settings.slice_secs(contest.workload.slice_secs)
        for name, more in alternate(systems, num_rounds, partial(step_rate, secs=secs)).items():
            slices[name] += more
    counts_gradients = contest.peer is not None
    return [
        _row(case, slices, name, limit, peer, 1.0 if counts_gradients else case.gradients_per_update)
        for name, case in products.items()
    ]


def _systems(contest: Contest, settings: Settings) -> tuple[System, System | None, list[System]]:
    """Return new systems: the limit, the peer if it takes part, and psflow in each case."""
    workload, first = contest.workload, contest.cases[0]
    peer: System | None = None
    if settings.quick or not contest.has_peer:
        peer = None
    elif contest.peer is not None:
        peer = contest.peer(workload, first)
    elif (found := find_peer()) is not None:
        peer = peer_system(found, workload, first, is_local=contest.peer_is_local)
    products: list[System] = [ProductSystem(workload, case) for case in contest.cases]
    return limit_system(workload, first.num_replicas), peer, products


def _row(case: Case, slices: dict[str, list[Slice]], name: str, limit: str, peer: str, peer_factor: float) -> Row:
    mine = samples_of(slices, name)
    assert mine is not None
    theirs = samples_of(slices, peer)
    return Row.of(
        case.key,
        case.unit,
        mine.scaled(case.gradients_per_update),
        samples_of(slices, limit),
        None if theirs is None else theirs.scaled(peer_factor),
    )
