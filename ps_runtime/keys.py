"""Annotates parameters for the configuration: their meaning and range, beside type and default."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """Annotates a parameter of an object that a configuration chooses by name, such as an optimizer or a format.

    A configuration has a key of the same name, type and default; forms and the documentation show the description.

    Parameters
    ----------
    description : str
        A sentence or two for the user of the configuration: null, not None.
    ge, gt, le, lt : float, optional
        Bounds of a number, each refused where the configuration is read.

    Examples
    --------
    >>> from typing import Annotated
    >>> momentum: Annotated[float, Key("Share of the sum that survives an update.", ge=0, lt=1)] = 0.9
    """

    description: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
