"""Figures of each role of a job, and sentences about stragglers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PREFIX = "role/"
SLOW = 0.7
"""Fraction of the median speed of the replicas below which a replica is a straggler."""
SILENT_SECS = 45.0
"""Roles report every 10 s at the latest."""


@dataclass(frozen=True)
class RoleFigures:
    """Latest figures of one role."""

    role: str
    values: Mapping[str, float]
    age_secs: float
    host: str | None = None

    @property
    def is_replica(self) -> bool:
        """Whether it computes gradients."""
        return self.role.startswith(("chief-", "worker-"))


def host_tag(role: str) -> str:
    """Return the tag of a run that names the host of a role."""
    return f"psflow.host.{role}"


def role_figures(figures: Mapping[str, tuple[float, float]], tags: Mapping[str, str], now: float) -> list[RoleFigures]:
    """Return the figures of each role, ps first, then chief, workers and evaluator."""
    by_role: dict[str, dict[str, tuple[float, float]]] = {}
    for key, figure in figures.items():
        if key.startswith(PREFIX) and key.count("/") == 2:
            _, role, name = key.split("/")
            by_role.setdefault(role, {})[name] = figure
    return [
        RoleFigures(
            role,
            {name: value for name, (value, _) in of.items()},
            now - max(at for _, at in of.values()),
            tags.get(host_tag(role)),
        )
        for role, of in sorted(by_role.items(), key=lambda item: _rank(item[0]))
    ]


def stragglers(roles: Sequence[RoleFigures]) -> list[str]:
    """Return a sentence for each replica that is slow, and for each role that is silent.

    Examples
    --------
    >>> roles = [RoleFigures(f"worker-{i}", {"steps_per_sec": rate}, 3.0) for i, rate in enumerate([100, 99, 20])]
    >>> stragglers(roles)
    ['worker-2 makes 20 steps/s, the median of the replicas is 99']
    """
    found = [
        f"{role.role} last reported {role.age_secs:.0f} s ago"
        for role in roles
        if role.age_secs > SILENT_SECS and not role.role.startswith("evaluator-")  # silent during evaluation
    ]
    rates = {
        role.role: role.values["steps_per_sec"]
        for role in roles
        if role.is_replica and "steps_per_sec" in role.values and role.age_secs <= SILENT_SECS
    }
    if len(rates) > 1:
        median = statistics.median(rates.values())
        found += [
            f"{role} makes {rate:.3g} steps/s, the median of the replicas is {median:.3g}"
            for role, rate in rates.items()
            if rate < SLOW * median
        ]
    return found


def _rank(role: str) -> tuple[int, str, int]:
    kind, _, index = role.rpartition("-")
    order = ("ps", "chief", "worker", "evaluator")
    rank = order.index(kind) if kind in order else len(order)
    return rank, kind, int(index) if index.isdigit() else 0
