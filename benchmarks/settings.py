"""Settings of a benchmark run."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from psflow.ps_runtime.errors import UsageError

__all__ = ["Settings"]

QUICK_SLICE_SECS = 0.4


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says.

    Parameters
    ----------
    output : Path
        Directory for plots and results.
    pairs : int
        Number of measurements of each system; the systems take turns.
    starts : int
        How often all systems are started afresh for them.
    quick : bool
        One case, two short pairs, no peer: shows that it runs, and nothing else.
    patterns : tuple of str
        Shell patterns; only cases that match one of them are run. Empty: all.
    rows : int
        Records of the log of clicks.
    """

    output: Path
    pairs: int = 9
    starts: int = 2
    quick: bool = False
    patterns: tuple[str, ...] = ()
    rows: int = 1_000_000

    def __post_init__(self) -> None:
        faults = [
            f"--{name} should be at least 1, got {value}"
            for name, value in (("pairs", self.pairs), ("starts", self.starts), ("rows", self.rows))
            if value < 1
        ]
        if faults:
            raise UsageError(tuple(faults))
        if self.quick:
            object.__setattr__(self, "pairs", 2)
            object.__setattr__(self, "starts", 1)

    def wants(self, case: str) -> bool:
        """Return whether a case is to be run."""
        return not self.patterns or any(fnmatchcase(case, pattern) for pattern in self.patterns)

    @property
    def rounds(self) -> list[int]:
        """How many rounds each start has: together as many as there are pairs.

        Examples
        --------
        >>> Settings(Path("."), pairs=9, starts=2).rounds
        [5, 4]
        """
        starts = min(self.starts, self.pairs)
        return [self.pairs // starts + (i < self.pairs % starts) for i in range(starts)]

    def slice_secs(self, wanted: float) -> float:
        """Return how long a measurement takes of which `wanted` seconds are wanted."""
        return min(wanted, QUICK_SLICE_SECS) if self.quick else wanted
