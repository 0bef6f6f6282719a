"""Which steps of a job are lost, over all of its attempts: tags of its MLflow run in, tags out."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["LostSteps"]

LOST_STEPS = "psflow.lost_steps"
"""The tag that names the steps of the lost branches."""
REACHED_STEP = "psflow.reached_step"
"""The tag with the last step of the branch that counts."""
MAX_NAMED = 100
"""Branches that the tag names, the newest ones; MLflow cuts a tag off after 8,000 characters."""


class LostSteps:
    """The steps that training has gone back behind, those of earlier attempts first.

    Notes
    -----
    Where the flow of an earlier attempt was killed, MLflow alone knows how far it came; steps that never reached MLflow
    are not counted. The tag names the newest 100 branches, and of those before them how many steps they had.

    Examples
    --------
    >>> lost = LostSteps({}, newest_step=700)
    >>> lost.go_back(500, 500)
    '501-700'
    >>> lost.go_back(500, 620)
    '501-620'
    >>> lost.tags(510)
    {'psflow.reached_step': '510', 'psflow.lost_steps': '501-700, 501-620'}
    """

    def __init__(self, tags: Mapping[str, str], newest_step: int) -> None:
        told = tags.get(LOST_STEPS, "")
        branches = [(int(first), int(last)) for first, last in re.findall(r"(\d+)-(\d+)", told)]
        self._branches = branches
        unnamed = re.match(r"(\d+) steps", told)
        self.num_steps = sum(map(_length, branches)) + (int(unnamed[1]) if unnamed else 0)
        # a newest point on a branch that is named already does not show how far the branch after it came
        is_named = newest_step <= max((last for _, last in branches), default=-1)
        noted = tags.get(REACHED_STEP, "")
        self._reached_before = max(int(noted) if noted.isdecimal() else 0, 0 if is_named else newest_step)

    def go_back(self, step: int, reached: int) -> str:
        """Take that training goes on from `step`, after this attempt has come to `reached`."""
        reached = max(reached, self._reached_before)
        self._reached_before = 0
        if reached <= step:
            return ""
        self._branches.append((step + 1, reached))
        self.num_steps += reached - step
        return _name(self._branches[-1])

    def reached_tag(self, step: int) -> dict[str, str]:
        """Return the tag for the next attempt, while this one is at `step`."""
        # until this attempt has its values, the branch of the one before counts
        return {REACHED_STEP: str(max(step, self._reached_before))}

    def tags(self, step: int) -> dict[str, str]:
        """Return all tags, once training goes on from `step`: MLflow has to get both at once."""
        named = self._branches[-MAX_NAMED:]
        num_unnamed = self.num_steps - sum(map(_length, named))
        before = [f"{num_unnamed} steps of earlier branches"] if num_unnamed else []
        return {**self.reached_tag(step), LOST_STEPS: ", ".join([*before, *map(_name, named)])}


def _length(branch: tuple[int, int]) -> int:
    first, last = branch
    return last - first + 1


def _name(branch: tuple[int, int]) -> str:
    return "{}-{}".format(*branch)
