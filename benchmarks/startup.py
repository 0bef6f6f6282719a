"""Time from the command to the first step of training, and from the last step to the end of the command."""

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
from benchmarks.startup_scene import Command, Scene

__all__ = ["CLAIM", "measure"]

CLAIM = """\
psflow train with 1 ps, 2 replicas and an evaluator: with cluster and servers up ("warm") the first step is done at most
2.5 s after the command. "local": it starts its own cluster and Prefect server: at most 3.5 s. "torch": the same for a
module of torch. "cold": there is neither a Prefect database nor an MLflow store. "tail": from the last step to the end
of the command, with one evaluation and one export: at most 3 s. The limit is a Python process that imports the modules
of the command."""

logger = logging.getLogger(__name__)

STARTS = ("warm", "local", "torch", "cold")
NUM_SLOTS = 4
"""A ps, the chief, a worker, the evaluator."""
SUFFIX = "shm/1ps/2w"
LIMIT, PEER = "limit", "peer"


def measure(settings: Settings) -> list[Row]:
    """Measure warm, local and cold starts and their ends, in turn with the limit and the peer."""
    starts = [kind for kind in STARTS if settings.wants(f"{kind}/{SUFFIX}")]
    if "torch" in starts and find_spec("torch") is None:
        logger.warning("torch is not installed, so there is no row of it; make torch installs it in a checkout")
        starts.remove("torch")
    if settings.quick:
        starts = starts[-1:]  # a cold start needs no servers or databases before it
    peer = find_peer() if starts and not settings.quick else None
    num_rounds = 1 if settings.quick else settings.pairs  # a cold start takes 10 s of CPU
    commands, secs = _measured(starts, peer, num_rounds)
    limit = Samples(secs[LIMIT])
    theirs = Samples(secs[PEER]) if peer is not None else None
    rows = []
    for kind, measured in commands.items():
        first_step, tail = (Samples(values) for values in zip(*measured, strict=True))
        rows += [
            Row.of(f"{kind}/{SUFFIX}", "s", first_step, limit, theirs, less_is_better=True),
            Row.of(f"{kind}/tail", "s", tail, less_is_better=True),
        ]
    return rows


def _measured(
    starts: Sequence[str], peer: Peer | None, num_rounds: int
) -> tuple[dict[str, list[Command]], dict[str, list[float]]]:
    """Return the measured commands by their start, and the seconds of limit and peer."""
    commands: dict[str, list[Command]] = defaultdict(list)
    secs: dict[str, list[float]] = defaultdict(list)
    with Scene() as scene:
        if {*starts} - {"cold"}:
            scene.local()  # makes the databases
        if "warm" in starts:
            scene.start_servers(NUM_SLOTS)
        begin = {"warm": scene.warm, "local": scene.local, "torch": scene.torch, "cold": scene.cold}
        for number in range(num_rounds):
            for kind in starts:
                commands[kind].append(begin[kind]())
            secs[LIMIT].append(scene.imports())
            if peer is not None:
                secs[PEER].append(_peer_secs(peer))
            logger.info("round %d: %s", number + 1, {kind: measured[-1] for kind, measured in commands.items()})
    return commands, secs


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
