"""Time from the command to the first step of training."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from importlib.util import find_spec

from benchmarks.cases import Case
from benchmarks.mlp import WORKLOAD
from benchmarks.peer import Peer, find_peer, peer_system
from benchmarks.rows import Row, Samples
from benchmarks.settings import Settings
from benchmarks.startup_parts import NUM_SLOTS, PARTS
from benchmarks.startup_scene import Scene

__all__ = ["CLAIM", "measure"]

CLAIM = """\
psflow train with 1 ps, 2 replicas and an evaluator: with cluster and servers up ("warm") the first step is done at most
6 s after the command. "local": it starts its own cluster and Prefect server. "torch": the same for a module of torch.
"cold": there is neither a Prefect database nor an MLflow store. The parts of a cold start are measured separately; in
the command they overlap. The limit is a Python process that imports the modules of the command."""

logger = logging.getLogger(__name__)

STARTS = ("warm", "local", "torch", "cold")
ALL_PARTS = ("python", *PARTS)
FLOOR = ("python", "imports")
SUFFIX = "shm/1ps/2w"
PEER = "peer"


def measure(settings: Settings) -> list[Row]:
    """Measure warm, local and cold starts and their parts, in turn with the peer."""
    starts = [kind for kind in STARTS if settings.wants(f"{kind}/{SUFFIX}")]
    if "torch" in starts and find_spec("torch") is None:
        logger.warning("torch is not installed, so there is no row of it; make torch installs it in a checkout")
        starts.remove("torch")
    parts = [name for name in ALL_PARTS if settings.wants(f"part/{name}")]
    if settings.quick:
        starts, parts = starts[-1:], parts[:1]  # a cold start needs no servers or databases before it
    peer = find_peer() if starts and not settings.quick else None
    num_rounds = 1 if settings.quick else settings.pairs  # a cold start takes 10 s of CPU
    secs = _measured(starts, parts, peer, num_rounds)
    floor = Samples([sum(pair) for pair in zip(*(secs[name] for name in FLOOR), strict=True)] if starts else [])
    theirs = Samples(secs[PEER]) if PEER in secs else None
    return [
        *(Row.of(f"{kind}/{SUFFIX}", "s", Samples(secs[kind]), floor, theirs, less_is_better=True) for kind in starts),
        *(Row.of(f"part/{name}", "s", Samples(secs[name]), less_is_better=True) for name in parts),
    ]


def _measured(
    starts: Sequence[str], parts: Sequence[str], peer: Peer | None, num_rounds: int
) -> dict[str, list[float]]:
    secs: dict[str, list[float]] = defaultdict(list)
    with Scene() as scene:
        if {*starts} - {"cold"}:
            scene.local_start()  # makes the databases
        if "warm" in starts:
            scene.start_servers(NUM_SLOTS)
        begin = {
            "warm": scene.warm_start,
            "local": scene.local_start,
            "torch": scene.torch_start,
            "cold": scene.cold_start,
        }
        for number in range(num_rounds):
            for kind in starts:
                secs[kind].append(begin[kind]())
            for name in [part for part in ALL_PARTS if part in parts or (starts and part in FLOOR)]:
                secs[name].append(scene.part(name))
            if peer is not None:
                secs[PEER].append(_peer_secs(peer))
            logger.info("round %d: %s", number + 1, {name: round(values[-1], 3) for name, values in secs.items()})
    return secs


def _peer_secs(peer: Peer) -> float:
    """Return the seconds from starting the processes of a job of the peer to the first step of its chief."""
    system = peer_system(peer, WORKLOAD, Case.parse(f"async/{SUFFIX}"))
    started = time.monotonic()
    try:
        system.start()
        first_step = next(event["first_step"] for event in system.events["chief-0"] if "first_step" in event)
        return float(first_step) - started
    finally:
        system.close()
