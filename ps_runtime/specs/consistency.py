"""Consistencies: frozen descriptions of how pushes of several replicas become updates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_args

from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.specs.arguments import ArgumentFaults


class _Facts:
    """The facts that every consistency states; there are no defaults, so that a new one omits none."""

    __slots__ = ()

    name: ClassVar[str]
    """Its name in configurations."""
    in_place: ClassVar[bool]
    """Whether replicas on the host of a ps read its memory while it is being written."""
    may_pipeline: ClassVar[bool]
    """Whether a gradient may use values that were pulled ahead."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        facts = ("name", "in_place", "may_pipeline", "staleness_aware", "gradients_per_update")
        missing = [fact for fact in facts if fact not in vars(cls)]
        if missing:
            raise TypeError(f"the consistency {cls.__name__} does not state {', '.join(missing)}; see Async")


@dataclass(frozen=True, slots=True)
class Async(_Facts):
    """Apply each push immediately: the fastest, and the most stale.

    Parameters
    ----------
    staleness_aware : bool
        Divide the learning rate of a push by its staleness, if that is greater than 1.

    References
    ----------
    Zhang, Gupta, Lian, Liu, Staleness-aware Async-SGD for Distributed Deep Learning, 2016.
    """

    name: ClassVar[str] = "async"
    in_place: ClassVar[bool] = False
    may_pipeline: ClassVar[bool] = True

    staleness_aware: Annotated[
        bool, Key("Whether to divide the learning rate of a push by its staleness, if that is greater than 1.")
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
    """Apply every push at most `max_staleness` updates after its pull: a replica that is ahead waits.

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
    """Apply the mean of `replicas_to_aggregate` gradients of the same step; later gradients of that step are dropped.

    Parameters
    ----------
    replicas_to_aggregate : int or None
        Gradients per update; None: one of each replica. With fewer than the replicas the others are backups; with more
        each gives several. When replicas are lost it shrinks to what the remaining ones can give.
    """

    name: ClassVar[str] = "sync"
    in_place: ClassVar[bool] = False
    may_pipeline: ClassVar[bool] = False
    staleness_aware: ClassVar[bool] = False

    replicas_to_aggregate: Annotated[
        int | None,
        Key(
            "Gradients per update; null: one of each replica. With fewer the others are backups, with more "
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
        """Return the number of gradients per update while all replicas are alive."""
        return self.replicas_to_aggregate or num_replicas


@dataclass(frozen=True, slots=True)
class Hogwild(_Facts):
    """Like `Async`, but replicas on the host of a ps read its memory in place, while it is being written.

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


@dataclass(frozen=True)
class StepDeadline:
    """Limits a worker's step while another replica waits for it: a multiple of its usual step.

    A worker that exceeds it is lost, as if it was killed: its batch goes to another replica, and it starts a new
    incarnation. While no replica waits there is no limit. The chief has no such deadline.

    Parameters
    ----------
    multiple : float
        Multiple of the usual step duration of this worker; greater than 1.
    min_secs, max_secs : float
        Lower and upper bound of the deadline in seconds; greater than 0. The first step of a worker, which calls
        model_fn for the first time, has `max_secs`.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message; an ArgumentTypeError if its type is wrong.

    Notes
    -----
    A slow worker should not be lost repeatedly: `min_secs` doubles for it each time, up to `max_secs`. For a batch that
    was given to such a worker, the deadline doubles each time without a limit.

    Examples
    --------
    >>> deadline = StepDeadline(multiple=10, min_secs=1, max_secs=600)
    >>> [deadline.secs(usual_secs) for usual_secs in (0.01, 0.5, 300)]
    [1.0, 5.0, 600.0]
    >>> deadline.secs(0.01, num_lost=2)
    4.0
    """

    multiple: float = 10.0
    min_secs: float = 1.0
    max_secs: float = 600.0

    def __post_init__(self) -> None:
        faults = ArgumentFaults("StepDeadline.")
        for name in ("multiple", "min_secs", "max_secs"):
            faults.number(name, getattr(self, name), above_zero=True)
        faults.raise_any()
        if self.multiple <= 1:
            faults.add(f"StepDeadline.multiple should be greater than 1, got {self.multiple!r}")
        if self.min_secs > self.max_secs:
            faults.add(f"StepDeadline.min_secs should be at most max_secs, got {self.min_secs!r} and {self.max_secs!r}")
        if math.isinf(self.max_secs):
            faults.add("StepDeadline.max_secs should be finite, got inf")
        faults.raise_any()

    def secs(self, usual_secs: float, num_lost: int = 0) -> float:
        """Return the deadline of a step.

        Parameters
        ----------
        usual_secs : float
            Usual duration of a step of this worker, from 0.
        num_lost : int, optional
            Earlier incarnations of the worker that a deadline ended.
        """
        least = self.min_secs * 2 ** min(num_lost, 64)  # more than any maximum
        return float(min(self.max_secs, max(least, self.multiple * usual_secs)))
