"""What the ids, classes and columns of a model mean, and whether they mean the same in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.features import BucketIds, HashIds, IdentityIds, VocabularyIds
from psflow.ps_runtime.estimator.vocabularies import places_of_words
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["ChangedIds", "changed_classes", "changed_columns", "changed_features", "changed_ids"]

Ids = VocabularyIds | HashIds | IdentityIds | BucketIds


@dataclass(frozen=True, slots=True, eq=False)
class ChangedIds:
    """A feature whose ids stand for other words than in the checkpoint."""

    feature: str
    num_ids: int
    old_num_ids: int
    places: NDArray[np.int64] | None

    def may_index(self, name: str) -> bool:
        """Return whether a variable or table of this name may have a row for each id, as canned models name them."""
        return any(f"/{part}/" in f"/{name}/" for part in (self.feature, f"{self.feature}_embedding"))

    def __str__(self) -> str:
        return f"the vocabulary of column {self.feature!r} ({self.num_ids} ids here, {self.old_num_ids} there)"


def changed_ids(new: InputSchema | None, old: InputSchema | None) -> list[ChangedIds]:
    """Return the features of ids that both models have, but whose ids have other meanings.

    The last id, that of unknown words and of blanks, stays what it is.
    """
    mine, theirs = _ids(new), _ids(old)
    changed = []
    for name in mine.keys() & theirs.keys():
        a, b = mine[name], theirs[name]
        if isinstance(a, VocabularyIds) and isinstance(b, VocabularyIds):
            if a.words != b.words:
                places = np.append(places_of_words(a.words, b.words), b.num_ids - 1)
                changed.append(ChangedIds(name, a.num_ids, b.num_ids, places))
        elif type(a) is not type(b):
            changed.append(ChangedIds(name, a.num_ids, b.num_ids, None))
    return sorted(changed, key=lambda one: one.feature)


def changed_classes(new: InputSchema | None, old: InputSchema | None) -> int:
    """Return how many classes the label has, if they are other words, or in another order, than in the checkpoint.

    0 if they are the same, or no words.
    """
    labels = [s.preprocessing.label if s is not None and s.preprocessing is not None else None for s in (new, old)]
    mine, theirs = (None if label is None else label.classes for label in labels)
    return len(mine) if mine is not None and theirs is not None and mine != theirs else 0


def changed_features(new: InputSchema | None, old: InputSchema | None) -> list[str]:
    """Say in sentences which features or columns the models read otherwise: their names, shapes and order."""
    if new is None or old is None:
        return []
    mine, theirs = ({spec.name: spec.shape for spec in schema.features} for schema in (new, old))
    lines = [f"feature {name!r} is not in the checkpoint" for name in mine if name not in theirs]
    lines += [f"feature {name!r} is only in the checkpoint" for name in theirs if name not in mine]
    if new.columns and old.columns and new.columns != old.columns:
        place = next(
            (i for i, (a, b) in enumerate(zip(new.columns, old.columns, strict=False)) if a != b),
            min(len(new.columns), len(old.columns)),
        )
        here, there = (", ".join(columns[place : place + 1]) or "none" for columns in (new.columns, old.columns))
        lines.append(f"column {place + 1} is {here!r} here, {there!r} in the checkpoint")
    return lines


def changed_columns(new: InputSchema | None, old: InputSchema | None) -> dict[str, list[str]]:
    """Return for each feature column that both models have, and that means something else, what differs."""
    if new is None or old is None:
        return {}
    there = {(spec.layer, spec.name): spec for spec in old.feature_columns}
    changed = {}
    for spec in new.feature_columns:
        before = there.get((spec.layer, spec.name))
        if before is not None and (lines := list(before.differences(spec))):
            changed[spec.name] = lines
    return changed


def _ids(schema: InputSchema | None) -> Mapping[str, Ids]:
    if schema is None or schema.preprocessing is None:
        return {}
    features = schema.preprocessing.features
    return {feature.name: feature for feature in features if isinstance(feature, Ids)}
