"""Predicts the steps per second of n replicas and m ps from the costs of the parts of a step, without measuring.

A step of a replica is a cycle: pull, compute, push to the other ps, push to ps-0, which replies with the next ticket.
Each of these limits the rate:

- the replicas, each of which makes one cycle after the other;
- the busiest ps, which has one thread. Each step takes one message of ps-0 for any m, and a pull and a push of any
  other ps; over shared memory a pull costs ps-0 nothing, and the others no more than a message without a body;
- the network of the host of a ps;
- the cores, if all roles share one machine.

The rate is the smallest of these limits. The model has no queues: if two limits are close, real rates are lower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

__all__ = ["LOG_ENTRY_BYTES", "Bottleneck", "Cluster", "Costs", "Linear", "Prediction", "WayCosts", "predict"]

LOG_ENTRY_BYTES = 20
"""Of a decision about one push, as docs/protocol.md says."""


class Bottleneck(StrEnum):
    """What keeps a job from being faster."""

    WORKERS = "the workers"
    TICKETS = "tickets of ps-0"
    MESSAGES = "messages of a ps"
    LOG = "log of decisions"
    APPLY = "receive and apply"
    NETWORK = "network of a ps"
    CORES = "cores"


@dataclass(frozen=True, slots=True)
class Linear:
    """Seconds for so many bytes: some for any number, and some for each.

    Examples
    --------
    >>> Linear.through((1000, 3.0), (5000, 7.0))(2000)
    4.0
    """

    fixed_secs: float
    secs_per_byte: float

    @classmethod
    def through(cls, small: tuple[int, float], large: tuple[int, float]) -> Self:
        """Return the line through two measurements, bytes and seconds of each; nothing of it is below 0."""
        slope = max(0.0, (large[1] - small[1]) / (large[0] - small[0]))
        return cls(max(0.0, small[1] - slope * small[0]), slope)

    def __call__(self, nbytes: float) -> float:
        """Return the seconds for `nbytes`."""
        return self.fixed_secs + self.secs_per_byte * nbytes


@dataclass(frozen=True, slots=True)
class WayCosts:
    """CPU seconds of one pull and of one push by one transport, by the bytes of the shard.

    Parameters
    ----------
    replica_pull, replica_push : Linear
        Of the replica, for each ps.
    ps_pull : Linear
        Of a ps that is asked.
    ps_push : Linear
        Of another ps than ps-0, updating its arena included.
    ps_0_push : Linear
        Of ps-0, updating its arena and giving a ticket included.
    """

    replica_pull: Linear
    replica_push: Linear
    ps_pull: Linear
    ps_push: Linear
    ps_0_push: Linear


@dataclass(frozen=True, slots=True)
class Costs:
    """What the parts of a step cost.

    Parameters
    ----------
    compute_secs : float
        CPU seconds of a replica for what is its own: batch, gradient, hooks.
    ways : mapping of str to WayCosts
        By transport.
    log_secs, log_0_secs : float
        CPU seconds of another ps and of ps-0 for each *other* replica at each step: with several ps, decisions about
        the pushes of all travel with each ticket and each pull.
    wake_secs : float
        What a round trip on this machine takes beyond the CPU seconds of both ends.
    """

    compute_secs: float
    ways: Mapping[str, WayCosts]
    log_secs: float
    log_0_secs: float
    wake_secs: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a job runs.

    Parameters
    ----------
    transport : str
        ``shm`` or ``tcp``.
    cores : int or None
        Of the one machine that all roles share; None: a core for each role.
    round_trip_secs : float
        Between a replica and a ps, without a load.
    network_bytes_per_sec : float or None
        Of each host, in each direction, a role a host; None: there is no network between them.
    """

    transport: str
    cores: int | None = None
    round_trip_secs: float = 0.0
    network_bytes_per_sec: float | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """Steps of all replicas together, what keeps them from being more, and the CPU seconds of all roles for one."""

    steps_per_sec: float
    bottleneck: Bottleneck
    cpu_secs_per_step: float


@dataclass(frozen=True, slots=True)
class _PsLoad:
    """What one step costs one ps."""

    index: int
    messages_secs: float
    bytes_secs: float
    log_secs: float

    @property
    def secs(self) -> float:
        return self.messages_secs + self.bytes_secs + self.log_secs

    @property
    def largest_part(self) -> Bottleneck:
        of_messages = Bottleneck.MESSAGES if self.index else Bottleneck.TICKETS
        parts = {of_messages: self.messages_secs, Bottleneck.APPLY: self.bytes_secs, Bottleneck.LOG: self.log_secs}
        return max(parts, key=lambda part: parts[part])


def predict(costs: Costs, cluster: Cluster, shard_nbytes: Sequence[int], num_replicas: int) -> Prediction:
    """Predict asynchronous training without a pipeline.

    Parameters
    ----------
    costs : Costs
        What was measured on this machine.
    cluster : Cluster
        The cores and the network of the job to predict.
    shard_nbytes : sequence of int
        Bytes of the arena of each ps; there are as many ps.
    num_replicas : int
        At least 1.
    """
    loads = _ps_loads(costs, cluster, shard_nbytes, num_replicas)
    busiest = max(loads, key=lambda load: load.secs)
    replica_secs = _replica_secs(costs, cluster, shard_nbytes)
    cycle_secs = replica_secs + _waiting_secs(costs, cluster, shard_nbytes)
    cpu_secs = replica_secs + sum(load.secs for load in loads)
    limits = {Bottleneck.WORKERS: num_replicas / cycle_secs, busiest.largest_part: 1 / busiest.secs}
    if cluster.cores is not None:
        limits[Bottleneck.CORES] = cluster.cores / cpu_secs
    if cluster.network_bytes_per_sec is not None:
        nbytes = max(shard_nbytes) + (LOG_ENTRY_BYTES * num_replicas if len(loads) > 1 else 0)
        limits[Bottleneck.NETWORK] = cluster.network_bytes_per_sec / nbytes
    bottleneck = min(limits, key=lambda limit: limits[limit])
    return Prediction(limits[bottleneck], bottleneck, cpu_secs)


def _ps_loads(costs: Costs, cluster: Cluster, shard_nbytes: Sequence[int], num_replicas: int) -> list[_PsLoad]:
    way = costs.ways[cluster.transport]
    has_others = len(shard_nbytes) > 1
    loads = []
    for index, nbytes in enumerate(shard_nbytes):
        push = way.ps_push if index else way.ps_0_push
        parts = [push] if nbytes or not index else []  # a ps without bytes receives only decisions
        parts += [way.ps_pull] if _is_asked(cluster, index) else []
        log_secs = (costs.log_secs if index else costs.log_0_secs) * (num_replicas - 1) * has_others
        fixed_secs = sum(part.fixed_secs for part in parts)
        loads.append(_PsLoad(index, fixed_secs, sum(part.secs_per_byte for part in parts) * nbytes, log_secs))
    return loads


def _replica_secs(costs: Costs, cluster: Cluster, shard_nbytes: Sequence[int]) -> float:
    """Return the CPU seconds of a replica for a step."""
    way = costs.ways[cluster.transport]
    secs = costs.compute_secs
    for index, nbytes in enumerate(shard_nbytes):
        secs += way.replica_pull(nbytes) - (0 if _is_asked(cluster, index) else way.replica_pull.fixed_secs)
        secs += way.replica_push(nbytes) if nbytes or not index else 0
    return secs


def _waiting_secs(costs: Costs, cluster: Cluster, shard_nbytes: Sequence[int]) -> float:
    """Return the time that a replica waits for the ps in a step, if no other replica is served there.

    It asks all ps for the parameters at once, then pushes to the others at once, then to ps-0.
    """
    way = costs.ways[cluster.transport]
    pulls = [way.ps_pull(nbytes) for index, nbytes in enumerate(shard_nbytes) if _is_asked(cluster, index)]
    pushes = [way.ps_push(nbytes) for nbytes in shard_nbytes[1:] if nbytes]
    groups = [pulls, pushes, [way.ps_0_push(shard_nbytes[0])]]
    secs = sum(max(group) + cluster.round_trip_secs for group in groups if group)
    if cluster.network_bytes_per_sec is not None:
        secs += 2 * sum(shard_nbytes) / cluster.network_bytes_per_sec
    return secs


def _is_asked(cluster: Cluster, index: int) -> bool:
    """Return whether a replica sends a PULL: it reads the shared memory of ps-0, which has decided all itself."""
    return index > 0 or cluster.transport != "shm"
