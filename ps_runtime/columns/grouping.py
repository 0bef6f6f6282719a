"""Groups columns that a model receives as one matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from psflow.ps_runtime.errors import UsageError, did_you_mean

Groups = Mapping[str, Sequence[str] | Literal["numeric"]]
"""The members of each group, or ``numeric``: all numbers that are in no other group."""


def members_of(groups: Groups, numbers: Sequence[str], others: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the members of each group.

    Raises
    ------
    UsageError
        Lists all faults: members that are not numbers or are in two groups, groups without members, and names that
        occur twice.
    """
    counts = Counter((*numbers, *others))
    faults = [f"two features are called {name!r}" for name, count in counts.items() if count > 1]
    known = dict.fromkeys(others, False) | dict.fromkeys(numbers, True)
    group_of: dict[str, str] = {}
    found: dict[str, tuple[str, ...]] = {}
    for group, asked in sorted(
        groups.items(), key=lambda item: item[1] == "numeric"
    ):  # numeric takes what the other groups leave
        members = tuple(name for name in numbers if name not in group_of) if asked == "numeric" else asked
        if isinstance(members, str):
            faults.append(f"group {group!r} is {members!r}, expected numeric or a list of columns")
            continue
        if not members:
            faults.append(f"group {group!r} is empty, expected at least one numeric column")
        for name in members:
            if fault := _member_fault(name, known, group_of):
                faults.append(f"group {group!r} has {name!r}, which {fault}")
            group_of[name] = group
        found[group] = tuple(members)
    left = known.keys() - group_of.keys()
    faults += [f"group {group!r} has the name of a feature; choose another" for group in groups if group in left]
    if faults:
        raise UsageError(tuple(faults))
    return {group: found[group] for group in groups}


def _member_fault(name: str, known: Mapping[str, bool], group_of: Mapping[str, str]) -> str:
    """Return the fault of a member, or ''; `known` says which features are numbers."""
    if name in group_of:
        return f"is in group {group_of[name]!r} already"
    if name not in known:
        return f"is not a column{did_you_mean(name, known)}"
    return "" if known[name] else "is not one number per record; leave it out, or set type: number"
