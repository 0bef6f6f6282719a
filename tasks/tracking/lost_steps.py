"""Steps of a job that training has rolled back, as tags of its run."""

from __future__ import annotations

import re
from collections.abc import Mapping

LOST_STEPS = "psflow.lost_steps"
"""Tag with the steps of the lost branches."""
REACHED_STEP = "psflow.reached_step"
"""Tag with the last step of the current branch."""
MAX_NAMED = 100
"""Number of newest branches in the tag; MLflow truncates a tag after 8,000 characters."""


class LostSteps:
    """Steps that training has rolled back, those of earlier attempts first.

    Notes
    -----
    If the flow of an earlier attempt was killed, only MLflow knows its last step; steps that never reached MLflow are
    not counted. The tag lists the newest 100 branches, and the number of steps of those before them.

    Examples
    --------
    >>> lost = LostSteps({}, newest_step=700)
    >>> lost.roll_back(500, 500)
    '501-700'
    >>> lost.roll_back(500, 620)
    '501-620'
    >>> lost.tags(510)
    {'psflow.reached_step': '510', 'psflow.lost_steps': '501-700, 501-620'}
    """

    def __init__(self, tags: Mapping[str, str], newest_step: int) -> None:
        tag = tags.get(LOST_STEPS, "")
        branches = [(int(first), int(last)) for first, last in re.findall(r"(\d+)-(\d+)", tag)]
        self._branches = branches
        unnamed = re.match(r"(\d+) steps", tag)
        self.num_steps = sum(map(_length, branches)) + (int(unnamed[1]) if unnamed else 0)
        # a newest point on a branch in the tag does not give the end of the branch after it
        is_named = newest_step <= max((last for _, last in branches), default=-1)
        noted = tags.get(REACHED_STEP, "")
        self._reached_before = max(int(noted) if noted.isdecimal() else 0, 0 if is_named else newest_step)

    def roll_back(self, step: int, reached: int) -> str:
        """Record that training continues from `step`, after this attempt reached `reached`; return the lost steps."""
        reached = max(reached, self._reached_before)
        self._reached_before = 0
        if reached <= step:
            return ""
        self._branches.append((step + 1, reached))
        self.num_steps += reached - step
        return _name(self._branches[-1])

    def reached_tag(self, step: int) -> dict[str, str]:
        """Return the tag for the next attempt, while this one is at `step`."""
        # until this attempt restores its values, the previous branch is current
        return {REACHED_STEP: str(max(step, self._reached_before))}

    def tags(self, step: int) -> dict[str, str]:
        """Return all tags, as training continues from `step`; MLflow has to get both at once."""
        named = self._branches[-MAX_NAMED:]
        num_unnamed = self.num_steps - sum(map(_length, named))
        before = [f"{num_unnamed} steps of earlier branches"] if num_unnamed else []
        return {**self.reached_tag(step), LOST_STEPS: ", ".join([*before, *map(_name, named)])}


def _length(branch: tuple[int, int]) -> int:
    first, last = branch
    return last - first + 1


def _name(branch: tuple[int, int]) -> str:
    return "{}-{}".format(*branch)
