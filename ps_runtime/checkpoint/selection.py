"""Selects checkpoints by forms such as ``all``, ``latest``, ``best``, ``last:5``, ``1000..9000``, ``300,600``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from psflow.ps_runtime.errors import UsageError, did_you_mean

KEYWORDS = ("all", "latest", "best")
FORMS = "all, latest, best, last:N, FIRST..LAST, or steps such as 300,600"
ONE_FORMS = "best, latest, or a step such as 600"
MAX_SHOWN = 12

_LAST = re.compile(r"last:([1-9]\d*)")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


@dataclass(frozen=True, slots=True)
class Available:
    """The checkpoints to select from."""

    where: str
    steps: Sequence[int]
    best: int | None

    def __str__(self) -> str:
        shown = [str(step) for step in self.steps]
        if len(shown) > MAX_SHOWN:
            shown = [*shown[: MAX_SHOWN // 2], "...", *shown[-MAX_SHOWN // 2 :]]
        return f"there are {', '.join(shown)}" if len(self.steps) > 1 else f"there is {shown[0]}"


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of checkpoints; made by `parse` or `parse_one`."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Selection:
        """Parse a comma-separated list of forms.

        Raises UsageError with each part that has an unknown form.

        Examples
        --------
        >>> Selection.parse("last:2,300").choose(Available("runs/digits", [0, 300, 600, 900], best=300))
        [300, 600, 900]
        """
        parts = tuple(part.strip() for part in text.split(","))
        faults = [f"expected {FORMS}; got {part!r}{_near(part)}" for part in parts if not _is_known(part)]
        if faults:
            raise UsageError(tuple(dict.fromkeys(faults)))
        return cls(parts)

    @classmethod
    def parse_one(cls, text: str) -> Selection:
        """Parse a form that selects a single checkpoint; UsageError for other forms."""
        part = text.strip()
        if not part.isdecimal() and part not in ("best", "latest"):
            raise UsageError((f"expected {ONE_FORMS}; got {part!r}{_near(part)}",))
        return cls((part,))

    def choose(self, available: Available) -> list[int]:
        """Return the steps of the selected checkpoints, ascending, without duplicates.

        Raises UsageError with each requested checkpoint that does not exist.
        """
        if not available.steps:
            raise UsageError(
                (f"no such checkpoint: {available.where} has none; train first, or name another model_dir",)
            )
        chosen: set[int] = set()
        faults = []
        for part in self.parts:
            steps, fault = _choose(part, available)
            chosen |= set(steps)
            faults += [f"no such checkpoint: {fault}; {available}"] if fault else []
        if faults:
            raise UsageError(tuple(faults))
        return sorted(chosen)


def _choose(part: str, available: Available) -> tuple[Sequence[int], str]:
    """Return the steps that `part` selects, or the fault."""
    steps, where = available.steps, available.where
    if part == "all":
        return steps, ""
    if part == "latest":
        return steps[-1:], ""
    if match := _LAST.fullmatch(part):
        return steps[-int(match[1]) :], ""
    if match := _RANGE.fullmatch(part):
        first, last = int(match[1]), int(match[2])
        found = [step for step in steps if first <= step <= last]
        return found, "" if found else f"{where} has none of the steps {first} to {last}"
    if part == "best":
        if available.best is None:
            return [], f"{where} has no best checkpoint, as no evaluation with finite metrics was exported; name a step"
        what, step = f"the best one of {where}, of step {available.best},", available.best
        return ([step], "") if step in steps else ([], f"{what} was removed; name another step")
    step = int(part)
    nearest = min(steps, key=lambda known: abs(known - step))
    return ([step], "") if step in steps else ([], f"{where} has none of step {step}, the nearest is {nearest}")


def _is_known(part: str) -> bool:
    match = _RANGE.fullmatch(part)
    if match is not None:
        return int(match[1]) <= int(match[2])
    return part in KEYWORDS or part.isdecimal() or _LAST.fullmatch(part) is not None


def _near(part: str) -> str:
    if match := _RANGE.fullmatch(part):
        return f"; did you mean {match[2]}..{match[1]}?"
    return "" if part.startswith("last:") else did_you_mean(part, (*KEYWORDS, "last:5"))
