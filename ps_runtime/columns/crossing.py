"""Crosses features: one id for each combination of the ids of several categorical features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.features import FeatureSpec
from psflow.ps_runtime.columns.options import MAX_NUMBER
from psflow.ps_runtime.columns.plain_fields import keep_plain_fields
from psflow.ps_runtime.columns.row_lifetime import UNLIMITED, RowLifetime, lifetime_faults
from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.keys import Key

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""The constants of SplitMix64."""


@dataclass(frozen=True, slots=True)
class CrossOptions:
    """The features that are crossed, and the number of ids.

    Parameters
    ----------
    columns : sequence of str
        Two or more categorical features, each once; their order counts.
    hash_buckets : int
        Combinations are hashed to ids below this number.
    embedding : int, optional
        The size of the embedding vector of each id.
    admit_after, expire_after_steps : int
        See `RowLifetime`: when the rows of ids are created and when they expire.

    Raises
    ------
    UsageError
        Lists all invalid values.
    """

    columns: Annotated[Sequence[str], Key("Categorical features to cross, two or more.")]
    hash_buckets: Annotated[int, Key("Combinations are hashed to ids below this number.", ge=1)]
    embedding: Annotated[int | None, Key("Size of the embedding vector of each id.", ge=1)] = None
    admit_after: Annotated[
        int, Key("A row of a sparse table is created once this many pushes have touched it.", ge=1)
    ] = 1
    expire_after_steps: Annotated[
        int | None, Key("Steps without a push after which a row is removed; null: never.", ge=1)
    ] = None

    def __post_init__(self) -> None:
        keep_plain_fields(self)
        if faults := tuple(self._faults()):
            raise UsageError(faults)

    def _faults(self) -> Iterator[str]:
        names = self.columns
        if len(names) < 2 or len(set(names)) < len(names):
            yield f"columns is {names!r}, expected a list of two or more names of features, each once"
        for key, value in (("hash_buckets", self.hash_buckets), ("embedding", self.embedding)):
            if value is not None and not 1 <= value <= MAX_NUMBER:
                yield f"{key} is {value!r}, expected a whole number from 1 to {MAX_NUMBER:,}"
        yield from lifetime_faults(self.admit_after, self.expire_after_steps)

    @property
    def lifetime(self) -> RowLifetime:
        """The lifetime of the rows of its ids."""
        return RowLifetime(self.admit_after, self.expire_after_steps)


@dataclass(frozen=True, slots=True)
class Cross:
    """A categorical feature: hashes of the combinations of the ids of `members`, below `num_buckets`."""

    name: str
    members: tuple[str, ...]
    num_buckets: int
    embedding: int | None = None
    lifetime: RowLifetime = UNLIMITED

    @property
    def spec(self) -> FeatureSpec:
        """The feature as a model sees it."""
        return FeatureSpec(self.name, "int64", (), self.num_buckets, self.embedding, self.lifetime)


def crosses_of(
    options: Mapping[str, CrossOptions], of_ids: Sequence[str], others: Sequence[str], apart: Sequence[str]
) -> tuple[Cross, ...]:
    """Return the configured crosses.

    Raises
    ------
    UsageError
        Lists all members that are not categorical features, and all names that are taken.
    """
    taken = dict.fromkeys(apart, "label, weight or key column") | dict.fromkeys([*of_ids, *others], "feature")
    faults = [f"cross {name!r} has the name of a {taken[name]}; choose another" for name in options if name in taken]
    for name, cross in options.items():
        for member in cross.columns:
            if member in others:
                why = "which is not categorical; set vocabulary, hash_buckets or buckets for it"
            elif member not in of_ids:
                why = f"which is not a feature{did_you_mean(member, [*of_ids, *others])}"
            else:
                continue
            faults.append(f"cross {name!r} has {member!r}, {why}")
    if faults:
        raise UsageError(tuple(faults))
    return tuple(
        Cross(name, tuple(cross.columns), cross.hash_buckets, cross.embedding, cross.lifetime)
        for name, cross in options.items()
    )


def crossing_ids(cross: Cross, features: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Return the id of each row's combination, below `num_buckets`, the same on every machine.

    Notes
    -----
    Each member in turn is added to the mixed value so far times the golden ratio, and mixed by the finalizer of
    SplitMix64. TensorFlow's ``crossed_column`` uses FarmHash, so its ids differ.

    References
    ----------
    Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.

    Examples
    --------
    >>> cross = Cross("town_x_job", ("town", "job"), 1000)
    >>> crossing_ids(cross, {"town": np.array([0, 0, 1]), "job": np.array([0, 1, 0])}).tolist()
    [55, 654, 600]
    """
    return combination_ids([features[member] for member in cross.members], cross.num_buckets)


def combination_ids(members: Sequence[NDArray[Any]], num_buckets: int, hash_key: int = 0) -> NDArray[np.int64]:
    """Return the id of each combination; see `crossing_ids`."""
    mixed = np.full(len(members[0]), hash_key, np.uint64)
    for member in members:
        mixed += (member.astype(np.uint64) + np.uint64(1)) * GOLDEN
        mixed ^= mixed >> np.uint64(30)
        mixed *= MIX_1
        mixed ^= mixed >> np.uint64(27)
        mixed *= MIX_2
        mixed ^= mixed >> np.uint64(31)
    mixed %= np.uint64(num_buckets)
    return mixed.view(np.int64)
