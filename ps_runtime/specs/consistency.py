"""How pushes of several replicas become updates: frozen descriptions, of which a job has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_args

from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.specs.arguments import ArgumentFaults

__all__ = ["CONSISTENCIES", "Async", "BoundedStaleness", "Consistency", "Hogwild", "Sync"]


class _Facts:
    """What every consistency states of itself; there are no defaults, so that a new one forgets none."""

    __slots__ = ()

    name: ClassVar[str]
    """In configurations."""
    in_place: ClassVar[bool]
    """Whether replicas on the host of a ps read its memory while it is being written."""
    may_pipeline: ClassVar[bool]
    """Whether a gradient may be of values that were pulled ahead."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        facts = ("name", "in_place", "may_pipeline", "staleness_aware", "gradients_per_update")
        missing = [fact for fact in facts if fact not in vars(cls)]
        if missing:
            raise TypeError(f"the consistency {cls.__name__} does not state {', '.join(missing)}; see Async")


@dataclass(frozen=True, slots=True)
class Async(_Facts):
    """Apply each push immediately: the fastest, and the stalest.

    Parameters
    ----------
    staleness_aware : bool
        Divide the learning rate of a push by its staleness, where that is more than 1.

    References
    ----------
    Zhang, Gupta, Lian, Liu, Staleness-aware Async-SGD for Distributed Deep Learning, 2016.
    """

    name: ClassVar[str] = "async"
    in_place: ClassVar[bool] = False
    may_pipeline: ClassVar[bool] = True

    staleness_aware: Annotated[
        bool, Key("Whether to divide the learning rate of a push by its staleness, where that is more than 1.")
    ] = False

    def __post_init__(self) -> None:
        faults = ArgumentFaults()
        faults.flag("staleness_aware", self.staleness_aware)
        faults.raise_any()

    def gradients_per_update(self, num_replicas: int) -> int:
        """Return 1: every push is an update."""
        return 1


@dataclass(frozen=True, slots=True)
class BoundedStaleness(_Facts):
    """Apply every push, none more than `max_staleness` updates after its pull: a replica that is ahead waits.

    Parameters
    ----------
    max_staleness : int
        At least 0; with 0 the replicas take turns.

    References
    ----------
    Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, 2013.
    """

    name: ClassVar[str] = "bounded_staleness"
    in_place: ClassVar[bool] = False
    may_pipeline: ClassVar[bool] = True
    staleness_aware: ClassVar[bool] = False

    max_staleness: Annotated[
        int, Key("Most updates between a replica's pull and its push; with 0 the replicas take turns.", ge=0)
    ] = 4

    def __post_init__(self) -> None:
        faults = ArgumentFaults()
        faults.whole("max_staleness", self.max_staleness, at_least=0)
        faults.raise_any()

    def gradients_per_update(self, num_replicas: int) -> int:
        """Return 1: every push is an update."""
        return 1


@dataclass(frozen=True, slots=True)
class Sync(_Facts):
    """Apply the mean of `replicas_to_aggregate` gradients, all of the same step; later ones of that step are dropped.

    Parameters
    ----------
    replicas_to_aggregate : int or None
        Gradients of an update; None: one of each replica. Fewer than the replicas makes the others backups; more lets
        each give several. When replicas are lost it shrinks to what the living can give.
    """

    name: ClassVar[str] = "sync"
    in_place: ClassVar[bool] = False
    may_pipeline: ClassVar[bool] = False
    staleness_aware: ClassVar[bool] = False

    replicas_to_aggregate: Annotated[
        int | None,
        Key(
            "Gradients of an update; null: one of each replica. With fewer the others are backups, with more "
            "each gives several.",
            ge=1,
        ),
    ] = None

    def __post_init__(self) -> None:
        faults = ArgumentFaults()
        if self.replicas_to_aggregate is not None:
            faults.whole("replicas_to_aggregate", self.replicas_to_aggregate, at_least=1)
        faults.raise_any()

    def gradients_per_update(self, num_replicas: int) -> int:
        """Return how many gradients an update is made of while all replicas live."""
        return self.replicas_to_aggregate or num_replicas


@dataclass(frozen=True, slots=True)
class Hogwild(_Facts):
    """As `Async`, but replicas on the host of a ps read its memory in place, while it is being written.

    References
    ----------
    Niu, Recht, Re, Wright, Hogwild!: A Lock-Free Approach to Parallelizing Stochastic Gradient Descent, 2011.
    """

    name: ClassVar[str] = "hogwild"
    in_place: ClassVar[bool] = True
    may_pipeline: ClassVar[bool] = True
    staleness_aware: ClassVar[bool] = False

    def gradients_per_update(self, num_replicas: int) -> int:
        """Return 1: every push is an update."""
        return 1


Consistency = Async | BoundedStaleness | Sync | Hogwild

CONSISTENCIES: dict[str, type[Consistency]] = {kind.name: kind for kind in get_args(Consistency)}
