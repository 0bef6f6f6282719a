"""Which steps of a job are lost, over all of its attempts: tags of its MLflow run in, tags out."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["LostSteps"]

LOST_STEPS = "psflow.lost_steps"
"""The tag that names the steps of the lost branches."""
REACHED_STEP = "psflow.reached_step"
"""The tag with the last step of the branch that counts."""


class LostSteps:
    """The steps that training has gone back behind, those of earlier attempts first.

    Parameters
    ----------
    tags : mapping of str to str
        Of the MLflow run, before this attempt.
    newest_step : int
        The newest training step of any point of the run, also of a lost branch; -1 without points.

    Attributes
    ----------
    num_steps : int
        How many steps are lost.

    Notes
    -----
    Where the flow of an earlier attempt was killed, MLflow alone knows how far it came; steps that never reached MLflow
    are not counted.

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
        told = tags.get(LOST_STEPS)
        self._named = [told] if told else []
        branches = [(int(first), int(last)) for first, last in re.findall(r"(\d+)-(\d+)", told or "")]
        self.num_steps = sum(last - first + 1 for first, last in branches)
        # a newest point on a branch that is named already does not show how far the branch after it came
        is_named = newest_step <= max((last for _, last in branches), default=-1)
        noted = tags.get(REACHED_STEP, "")
        self._reached_before = max(int(noted) if noted.isdecimal() else 0, 0 if is_named else newest_step)

    def go_back(self, step: int, reached: int) -> str:
        """Take that training goes on from `step`, after this attempt has come to `reached`.

        Returns
        -------
        str
            The steps that are lost with this, such as ``301-400``; empty if none is.
        """
        reached = max(reached, self._reached_before)
        self._reached_before = 0
        if reached <= step:
            return ""
        branch = f"{step + 1}-{reached}"
        self._named.append(branch)
        self.num_steps += reached - step
        return branch

    def reached_tag(self, step: int) -> dict[str, str]:
        """Return the tag for the next attempt, while this one is at `step`."""
        # until this attempt has its values, the branch of the one before counts
        return {REACHED_STEP: str(max(step, self._reached_before))}

    def tags(self, step: int) -> dict[str, str]:
        """Return all tags, once training goes on from `step`: MLflow has to get both at once."""
        return {**self.reached_tag(step), LOST_STEPS: ", ".join(self._named)}
