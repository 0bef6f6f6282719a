"""The case of a benchmark's row: ``consistency/transport/ps/workers`` and an optional variant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.specs.consistency import CONSISTENCIES, Sync

__all__ = ["Case"]

PIPELINE = "+pipeline"
FORM = re.compile(r"(?P<mode>[^/]+)/(?P<transport>[^/]+)/(?P<ps>\d+)ps/(?P<replicas>\d+)w(?:/(?P<variant>.+))?")


@dataclass(frozen=True, slots=True)
class Case:
    """One way to run a workload.

    Parameters
    ----------
    consistency : str
        A name in `CONSISTENCIES`.
    transport : str
        ``shm``, ``unix`` or ``tcp``.
    num_ps : int
        Each holds a shard.
    num_replicas : int
        Processes that train: the chief is one of them.
    variant : str
        Of the workload, such as ``10M`` or ``zipf``; may be empty.
    pipeline_depth : int
        As in RunConfig.

    Examples
    --------
    >>> Case("async", "shm", num_ps=1, num_replicas=2, pipeline_depth=1).key
    'async+pipeline/shm/1ps/2w'
    >>> Case.parse("sync/tcp/2ps/3w/zipf").variant
    'zipf'
    """

    consistency: str
    transport: str
    num_ps: int = 1
    num_replicas: int = 2
    variant: str = ""
    pipeline_depth: int = 0

    def __post_init__(self) -> None:
        if self.consistency not in CONSISTENCIES:
            fault = f"consistency should be one of {', '.join(CONSISTENCIES)}, got {self.consistency!r}"
            raise UsageError((fault + did_you_mean(self.consistency, CONSISTENCIES),))

    @classmethod
    def parse(cls, key: str) -> Self:
        """Return the case of a key.

        Raises
        ------
        UsageError
            If the key does not look like one.
        """
        match = FORM.fullmatch(key)
        if match is None:
            raise UsageError((f"expected a case such as async/shm/1ps/2w, got {key!r}",))
        mode = match["mode"]
        return cls(
            mode.removesuffix(PIPELINE),
            match["transport"],
            int(match["ps"]),
            int(match["replicas"]),
            match["variant"] or "",
            int(mode.endswith(PIPELINE)),
        )

    @property
    def key(self) -> str:
        """The name of the row."""
        mode = self.consistency + (PIPELINE if self.pipeline_depth else "")
        parts = (mode, self.transport, f"{self.num_ps}ps", f"{self.num_replicas}w", self.variant)
        return "/".join(part for part in parts if part)

    @property
    def gradients_per_update(self) -> int:
        """Number of gradients of one step of the global_step."""
        return CONSISTENCIES[self.consistency]().gradients_per_update(self.num_replicas)

    @property
    def unit(self) -> str:
        """The counted unit: gradients if an update takes several of them, else updates."""
        return "gradients/s" if self.consistency == Sync.name else "steps/s"

    def settings(self) -> dict[str, Any]:
        """Return the RunConfig arguments of this case."""
        return {"consistency": CONSISTENCIES[self.consistency](), "pipeline_depth": self.pipeline_depth}
