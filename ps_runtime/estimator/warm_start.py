"""Resolves WarmStartSettings: the variables that are meant, and the location of each in the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.columns.features import BucketIds, HashIds, IdentityIds, VocabularyIds
from psflow.ps_runtime.errors import CheckpointError, UsageError, did_you_mean
from psflow.ps_runtime.estimator.checkpoint_values import checkpoint_at
from psflow.ps_runtime.estimator.warm_start_settings import VocabInfo, WarmStartSettings, places_of_entries, read_places
from psflow.ps_runtime.initializers import zeros
from psflow.ps_runtime.model.warm_start import WarmSource, WarmStart
from psflow.ps_runtime.specs.run_config import absolute
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.variables import ModelSpec

Ids = VocabularyIds | HashIds | IdentityIds | BucketIds


@dataclass(frozen=True, slots=True, eq=False)
class ChangedIds:
    """A feature whose ids stand for other categories than in the checkpoint."""

    feature: str
    num_ids: int
    old_num_ids: int
    places: NDArray[np.int64] | None

    def may_index(self, name: str) -> bool:
        """Return whether `name` may have a row for each id, by the naming scheme of the canned models."""
        return any(f"/{part}/" in f"/{name}/" for part in (self.feature, f"{self.feature}_embedding"))

    def __str__(self) -> str:
        return f"the vocabulary of column {self.feature!r} ({self.num_ids} ids here, {self.old_num_ids} there)"


def changed_ids(new: InputSchema | None, old: InputSchema | None) -> list[ChangedIds]:
    """Return the features of ids that both models have, but whose ids have other meanings.

    The last id, which stands for unknown strings and missing values, keeps its meaning.
    """
    mine, theirs = _ids(new), _ids(old)
    changed = []
    for name in mine.keys() & theirs.keys():
        a, b = mine[name], theirs[name]
        if isinstance(a, VocabularyIds) and isinstance(b, VocabularyIds):
            if a.vocabulary != b.vocabulary:
                places = np.append(places_of_entries(a.vocabulary, b.vocabulary), b.num_ids - 1)
                changed.append(ChangedIds(name, a.num_ids, b.num_ids, places))
        elif type(a) is not type(b):
            changed.append(ChangedIds(name, a.num_ids, b.num_ids, None))
    return sorted(changed, key=lambda one: one.feature)


def changed_classes(new: InputSchema | None, old: InputSchema | None) -> int:
    """Return the number of classes of the label, if their names or their order differ from those in the checkpoint.

    0 if they are equal, or are not strings.
    """
    labels = [s.preprocessing.label if s is not None and s.preprocessing is not None else None for s in (new, old)]
    mine, theirs = (None if label is None else label.classes for label in labels)
    return len(mine) if mine is not None and theirs is not None and mine != theirs else 0


def changed_features(new: InputSchema | None, old: InputSchema | None) -> list[str]:
    """Return sentences on the features or columns that the models read differently: names, shapes and order."""
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
    """Return the differences of each feature column that both models have but define differently."""
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


IF_MEANT = "if that is meant, give vars_to_warm_start as a list of regular expressions, such as ['.*']"


def plan_warm_start(settings: WarmStartSettings, model: ModelSpec, trainable: Collection[str]) -> WarmStart:
    """Return the sources of the initial values of a model. Blocks; reads manifests and vocabularies, no values.

    Raises
    ------
    UsageError
        If a variable is missing from the checkpoint, or has another shape or dtype there; if a name or a regular
        expression of the settings matches nothing in the model; if a vocabulary does not fit; or if ids, classes or
        features have other meanings there and no setting maps them. All faults are in one message.
    CheckpointError
        If there is no checkpoint, or a part of it is missing.
    """
    store, step = warm_checkpoint(settings.ckpt_to_initialize_from)
    manifest = store.manifest(step)
    if faults := store.wrong_sizes(step):
        raise CheckpointError(store.path(step), f"{'; '.join(faults)}; warm-start from another checkpoint")
    plan = _Plan(settings, model, manifest, f"checkpoint {store.path(step)}")
    names = plan.chosen(trainable)
    sources = tuple(source for name in names if (source := plan.source(name)) is not None)
    plan.check_meanings(sources)
    if plan.faults:
        raise UsageError(tuple(plan.faults))
    return WarmStart(store.files.url, step, sources)


def warm_checkpoint(path: str) -> tuple[CheckpointStore, int]:
    """Return store and step of a checkpoint: that of the directory `path`, or the latest one of a model_dir.

    Raises CheckpointError if there is no checkpoint.
    """
    is_checkpoint = re.search(r"/checkpoints/step_\d+/*$", path) is not None
    return checkpoint_at(absolute(path), path if is_checkpoint else None)


@dataclass(frozen=True, slots=True)
class _Part:
    """A variable, or a table in the form of a variable."""

    shape: tuple[int, ...]
    dtype: str
    is_table: bool

    def __str__(self) -> str:
        return f"{'table ' if self.is_table else ''}{self.dtype}{list(self.shape)}"


class _Plan:
    """Plans the variables one by one, and collects all faults."""

    def __init__(self, settings: WarmStartSettings, model: ModelSpec, manifest: Manifest, where: str) -> None:
        self.faults: list[str] = []
        self._settings = settings
        self._where = where
        self._model = model
        self._parts = _parts(model)
        self._old_model = manifest.model
        self._old_parts = _parts(manifest.model)
        self._changed = changed_ids(model.schema, manifest.model.schema)
        self._settled: set[str] = set()
        """Features whose changed ids have a VocabInfo."""

    def chosen(self, trainable: Collection[str]) -> list[str]:
        """Return the names of the variables and tables to warm-start, in model order."""
        settings = self._settings
        is_list = settings.patterns and not isinstance(settings.vars_to_warm_start, str)
        pool = [name for name, part in self._parts.items() if is_list or part.is_table or name in trainable]
        if settings.vars_to_warm_start is None:
            names = [name for name in pool if name in settings.vocab_infos]
        else:
            matched = {name for pattern in settings.patterns for name in self._matches(pattern, pool)}
            names = [name for name in pool if name in matched]
        self._check_used("var_name_to_vocab_info", settings.vocab_infos, names, pool)
        self._check_used("var_name_to_prev_var_name", settings.previous_names, names, pool)
        return names

    def source(self, name: str) -> WarmSource | None:
        """Return the source of a variable or table; None, and a fault, if there is none."""
        previous = self._settings.previous_names.get(name, name)
        old = self._old_parts.get(previous)
        if old is None:
            self.faults.append(
                f"variable {name!r}: {self._where} has no variable {previous!r}"
                f"{did_you_mean(previous, self._old_parts)}; name it in var_name_to_prev_var_name, or leave {name!r} "
                "out of vars_to_warm_start"
            )
            return None
        info = self._settings.vocab_infos.get(name)
        if info is not None:
            return self._by_vocabulary(name, previous, info, old)
        changed = [one for one in self._changed if one.may_index(name)]
        changed = [one for one in changed if self._shapes_fit(name, old, one)]
        if changed:
            return self._by_learned_vocabulary(name, previous, old, changed)
        return self._as_it_is(name, previous, old)

    def check_meanings(self, sources: Sequence[WarmSource]) -> None:
        """Record ids, classes and features with other meanings, where all variables are taken by default."""
        if not self._settings.takes_all_trainable or self.faults:
            return
        sizes = {len(source.places) for source in sources if source.places is not None}
        schemas = self._model.schema, self._old_model.schema
        unsettled = [str(one) for one in self._changed if one.feature not in self._settled and one.num_ids not in sizes]
        num_classes = changed_classes(*schemas)
        if num_classes and num_classes not in sizes:
            unsettled.append("the classes of the label")
        self.faults += [
            f"{what} differs from that of {self._where}, but no variable is known to have a row or column for each: "
            f"give a VocabInfo by var_name_to_vocab_info; {IF_MEANT}"
            for what in unsettled
        ]
        mapped = [f"/{source.name}/" for source in sources if source.places is not None]
        self.faults += [
            f"{line} ({self._where}): give a VocabInfo by var_name_to_vocab_info; {IF_MEANT}"
            for column, lines in changed_columns(*schemas).items()
            if not any(f"/{column}/" in name for name in mapped)
            for line in lines
        ]
        self.faults += [
            f"{line}: weights would belong to something else ({self._where}); {IF_MEANT}"
            for line in changed_features(*schemas)
        ]

    def _matches(self, pattern: str, pool: Collection[str]) -> list[str]:
        """Return the names that begin with a match; as in TensorFlow, patterns may match a ``:0`` after a name."""
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            self.faults.append(f"vars_to_warm_start: {pattern!r} is not a regular expression: {error}")
            return []
        found = [name for name in pool if compiled.match(name) or compiled.match(f"{name}:0")]
        if not found:
            self.faults.append(
                f"vars_to_warm_start: {pattern!r} matches no variable of "
                f"{', '.join(sorted(pool)) or 'the model, which has none'}"
            )
        return found

    def _check_used(
        self, argument: str, given: Mapping[str, object], names: Collection[str], pool: Collection[str]
    ) -> None:
        for name in given:
            if name in names:
                continue
            hint = did_you_mean(name, names) if name not in pool else "; vars_to_warm_start leaves it out"
            self.faults.append(
                f"{argument} has {name!r}, which is not a variable to warm-start{hint}; those are "
                f"{', '.join(sorted(names)) or 'none'}"
            )

    def _as_it_is(self, name: str, previous: str, old: _Part) -> WarmSource | None:
        new = self._parts[name]
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            self.faults.append(
                f"variable {name!r} is {new}, but {previous!r} of {self._where} is {old}; give a VocabInfo if its "
                "vocabulary has changed, or leave it out of vars_to_warm_start"
            )
            return None
        return WarmSource(name, previous)

    def _by_vocabulary(self, name: str, previous: str, info: VocabInfo, old: _Part) -> WarmSource | None:
        new = self._parts[name]
        if faults := list(self._vocabulary_faults(name, previous, info, old)):
            self.faults += faults
            return None
        try:
            places = read_places(info)
        except UsageError as error:
            self.faults += [f"variable {name!r}: {fault}" for fault in error.faults]
            return None
        if places.max() >= old.shape[info.axis]:
            self.faults.append(
                f"variable {name!r}: line {places.max() + 1} of {info.old_vocab} has no place in {previous!r} of "
                f"{self._where}, which is {old}; give its own vocabulary, or old_vocab_size"
            )
            return None
        self._settled |= {one.feature for one in self._changed if one.may_index(name)}
        backup = None if new.is_table else info.backup_initializer or zeros
        return WarmSource(name, previous, places, info.axis, backup)

    def _vocabulary_faults(self, name: str, previous: str, info: VocabInfo, old: _Part) -> Iterator[str]:
        new, axis = self._parts[name], info.axis
        if len(new.shape) <= axis or len(old.shape) <= axis or (axis == 1 and (new.is_table or old.is_table)):
            yield (
                f"variable {name!r} is {new}, and {previous!r} of {self._where} is {old}: no VocabInfo of axis {axis} "
                "fits both"
            )
            return
        num_ids = info.new_vocab_size + info.num_oov_buckets
        if new.shape[axis] != num_ids:
            yield (
                f"variable {name!r} is {new}, but its VocabInfo is of {num_ids} along axis {axis}: new_vocab_size "
                f"{info.new_vocab_size} and num_oov_buckets {info.num_oov_buckets}"
            )
        if (_without(new.shape, axis), new.dtype) != (_without(old.shape, axis), old.dtype):
            yield (
                f"variable {name!r} is {new}, but {previous!r} of {self._where} is {old}; a VocabInfo of axis {axis} "
                "allows another length only along that axis"
            )
        if new.is_table and info.backup_initializer is not None:
            yield (
                f"table {name!r} gives new rows the values of its own initializer; leave backup_initializer out of its "
                "VocabInfo"
            )

    def _shapes_fit(self, name: str, old: _Part, changed: ChangedIds) -> bool:
        return self._parts[name].shape[:1] == (changed.num_ids,) and old.shape[:1] == (changed.old_num_ids,)

    def _by_learned_vocabulary(
        self, name: str, previous: str, old: _Part, changed: list[ChangedIds]
    ) -> WarmSource | None:
        new = self._parts[name]
        one = changed[0]
        if len(changed) > 1 or one.places is None:
            columns = " or ".join(repr(each.feature) for each in changed)
            self.faults.append(
                f"variable {name!r} may have a row for each id of column {columns}, whose ids differ from those in "
                f"{self._where}; map them by var_name_to_vocab_info"
            )
            return None
        if (new.shape[1:], new.dtype) != (old.shape[1:], old.dtype):
            return self._as_it_is(name, previous, old)
        self._settled.add(one.feature)
        return WarmSource(name, previous, one.places)


def _parts(model: ModelSpec) -> dict[str, _Part]:
    variables = {v.name: _Part(v.shape, v.dtype, is_table=False) for v in model.variables}
    return variables | {t.name: _Part((t.num_rows, t.dim), t.dtype, is_table=True) for t in model.tables}


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])
