"""Rows of a result: one case each, psflow beside its limit and its peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from benchmarks.quartiles import Spread, paired_ratios

__all__ = ["Row", "Samples"]

DIGITS = 5
"""Significant ones of the numbers in a result."""


@dataclass(frozen=True, slots=True)
class Samples:
    """What was measured of one system, in the order of the pairs.

    Parameters
    ----------
    values : sequence of float
        In the unit of the row.
    cpu_secs_per_step : sequence of float
        CPU seconds of all its processes for each step; empty where there are no steps.
    """

    values: Sequence[float]
    cpu_secs_per_step: Sequence[float] = ()

    def scaled(self, factor: float) -> Samples:
        """Return the same in a unit that is `factor` times smaller: so many gradients a step, for example."""
        return Samples([v * factor for v in self.values], [c / factor for c in self.cpu_secs_per_step])


@dataclass(frozen=True, slots=True)
class Row:
    """One case.

    Parameters
    ----------
    case, unit : str
        Its name, such as ``async/shm/1ps/2w``, and the unit of the figures.
    psflow : Spread
        Median and quartiles of psflow.
    limit, peer : Spread or None
        None where there is none, or where the peer is not installed.
    ratio_limit, ratio_peer : Spread or None
        Of each pair; more than 1 means that psflow is better, whatever the unit.
    cpu_secs_per_step : mapping of str to float or None
        Medians, by ``psflow``, ``limit`` and ``peer``.
    """

    case: str
    unit: str
    psflow: Spread
    limit: Spread | None
    peer: Spread | None
    ratio_limit: Spread | None
    ratio_peer: Spread | None
    cpu_secs_per_step: dict[str, float | None]

    @classmethod
    def of(
        cls,
        case: str,
        unit: str,
        psflow: Samples,
        limit: Samples | None = None,
        peer: Samples | None = None,
        *,
        less_is_better: bool = False,
    ) -> Self:
        """Return the row of samples that were taken in turn: the n-th of each system make the n-th pair."""

        def spread(samples: Samples | None) -> Spread | None:
            return None if samples is None else Spread.of(samples.values)

        def ratio(other: Samples | None) -> Spread | None:
            if other is None:
                return None
            better, worse = (other, psflow) if less_is_better else (psflow, other)
            if 0.0 in worse.values:  # a pause too short to be seen
                return None
            return Spread.of(paired_ratios(better.values, worse.values))

        systems = {"psflow": psflow, "limit": limit, "peer": peer}
        cpu = {
            name: Spread.of(s.cpu_secs_per_step).median if s and s.cpu_secs_per_step else None
            for name, s in systems.items()
        }
        return cls(case, unit, Spread.of(psflow.values), spread(limit), spread(peer), ratio(limit), ratio(peer), cpu)

    def to_facts(self) -> dict[str, Any]:
        """Return the row as it stands in the JSON: medians, and beside them the quartiles of each."""
        spreads = {name: getattr(self, name) for name in ("psflow", "limit", "peer", "ratio_limit", "ratio_peer")}
        return {
            "case": self.case,
            "unit": self.unit,
            **{name: None if s is None else _short(s.median) for name, s in spreads.items()},
            "quartiles": {name: None if s is None else [_short(s.q1), _short(s.q3)] for name, s in spreads.items()},
            "cpu_secs_per_step": {n: None if c is None else _short(c) for n, c in self.cpu_secs_per_step.items()},
        }


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
