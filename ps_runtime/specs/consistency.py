"""How pushes of several replicas become updates: frozen descriptions, of which a job has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from psflow.ps_runtime.errors import UsageError

__all__ = ["CONSISTENCIES", "Async", "BoundedStaleness", "Consistency", "Hogwild", "Sync"]


@dataclass(frozen=True, slots=True)
class Async:
    """Apply every push at once: the fastest, and the stalest.

    Parameters
    ----------
    staleness_aware : bool
        Divide the learning rate of a push by its staleness, where that is more than 1.

    References
    ----------
    Zhang, Gupta, Lian, Liu, Staleness-aware Async-SGD for Distributed Deep Learning, 2016.
    """

    name: ClassVar[str] = "async"
    staleness_aware: bool = False


@dataclass(frozen=True, slots=True)
class BoundedStaleness:
    """Apply every push, none of them more than `max_staleness` updates after its pull: who is ahead waits.

    Parameters
    ----------
    max_staleness : int
        At least 0; with 0 the replicas take turns.

    References
    ----------
    Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, 2013.
    """

    name: ClassVar[str] = "bounded_staleness"
    max_staleness: int = 4

    def __post_init__(self) -> None:
        if self.max_staleness < 0:
            raise UsageError((f"max_staleness should be 0 or more, got {self.max_staleness}",))


@dataclass(frozen=True, slots=True)
class Sync:
    """Apply the mean of `replicas_to_aggregate` gradients, all of the same step; later ones of that step are dropped.

    Parameters
    ----------
    replicas_to_aggregate : int or None
        Gradients of an update; None: one of each replica. Fewer than the replicas makes the others backups; more lets
        each give several. When replicas are lost it shrinks to what the living can give.
    """

    name: ClassVar[str] = "sync"
    replicas_to_aggregate: int | None = None

    def __post_init__(self) -> None:
        if self.replicas_to_aggregate is not None and self.replicas_to_aggregate < 1:
            raise UsageError((f"replicas_to_aggregate should be 1 or more, got {self.replicas_to_aggregate}",))

    def gradients_per_update(self, num_replicas: int) -> int:
        """Return how many gradients an update is made of while all replicas live."""
        return self.replicas_to_aggregate or num_replicas


@dataclass(frozen=True, slots=True)
class Hogwild:
    """As `Async`, but replicas on the host of a ps read its memory in place, while it is being written.

    References
    ----------
    Niu, Recht, Re, Wright, Hogwild!: A Lock-Free Approach to Parallelizing Stochastic Gradient Descent, 2011.
    """

    name: ClassVar[str] = "hogwild"


Consistency = Async | BoundedStaleness | Sync | Hogwild

CONSISTENCIES: dict[str, type[Consistency]] = {kind.name: kind for kind in (Async, BoundedStaleness, Sync, Hogwild)}
