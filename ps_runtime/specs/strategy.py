"""The interface of strategies for the distribute coordinator, and the parameter-server strategy."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from psflow.ps_runtime.specs.roles import Role
from psflow.ps_runtime.specs.task_facts import ClusterSpec


class StrategyExtended(Protocol):
    """Describes how the tasks of a strategy share their work."""

    @property
    def experimental_between_graph(self) -> bool:
        """Whether each replica calls worker_fn, or one call serves all of them."""

    @property
    def experimental_should_init(self) -> bool:
        """Whether this task initialises the variables."""

    @property
    def should_checkpoint(self) -> bool:
        """Whether this task saves checkpoints."""

    @property
    def should_save_summary(self) -> bool:
        """Whether this task saves summaries."""


@runtime_checkable
class Strategy(Protocol):
    """The argument of `worker_fn`: a copy for each task, configured for it."""

    @property
    def extended(self) -> StrategyExtended:
        """Describes how the tasks share their work."""

    def configure(
        self,
        session_config: Any = None,
        cluster_spec: ClusterSpec | None = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        """Become the strategy of one task."""


class ParameterServerStrategy:
    """Each replica calls `worker_fn`, and all share the parameter servers; the chief saves.

    Examples
    --------
    >>> strategy = ParameterServerStrategy()
    >>> strategy.configure(None, ClusterSpec({"chief": ["a:1"], "worker": ["b:1"]}), "worker", 0)
    >>> strategy.extended.should_checkpoint
    False
    """

    def __init__(self) -> None:
        self.extended = ParameterServerExtended()

    def configure(
        self,
        session_config: Any = None,
        cluster_spec: ClusterSpec | None = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        """Become the strategy of one task; without a cluster, or without a task, that of the only one.

        Parameters
        ----------
        session_config : object
            Ignored: there are no graph sessions.
        cluster_spec : ClusterSpec or None
            The cluster.
        task_type, task_id : str and int, or None
            The task.
        """
        others = bool(cluster_spec) and task_type is not None
        self.extended.is_chief = not others or _is_chief(cluster_spec or ClusterSpec(), task_type, task_id)


class ParameterServerExtended:
    """Describes how replicas share their work at parameter servers."""

    experimental_between_graph = True

    def __init__(self) -> None:
        self.is_chief = True
        """Also True without a cluster."""

    @property
    def experimental_should_init(self) -> bool:
        """Whether this task initialises the variables; only the chief does."""
        return self.is_chief

    @property
    def should_checkpoint(self) -> bool:
        """Whether this task saves checkpoints; only the chief does."""
        return self.is_chief

    @property
    def should_save_summary(self) -> bool:
        """Whether this task saves summaries; only the chief does."""
        return self.is_chief


def _is_chief(cluster: ClusterSpec, task_type: str | None, task_id: int | None) -> bool:
    return (task_type, task_id) == ((Role.CHIEF if Role.CHIEF in cluster.jobs else Role.WORKER), 0)
