"""Brings the inputs of a trained model into the form of its training input, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from psflow.ps_runtime.columns.row_lifetime import RowLifetime
from psflow.ps_runtime.data.arrays import Columns, array_specs, zeros_of
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.kept_scan import KeptScan
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.ps_runtime.data.unread_columns import learn_what_is_read
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import MATRIX, ArraySpec, InputSchema
from psflow.ps_runtime.specs.schema_enforcement import enforce_features, missing_faults, scale_features

MAX_NAMES = 10
"""Names that a sentence lists."""
Batch = tuple[Columns, Columns | None]
Reads = Callable[[Columns, Columns | None, InputSchema, str], InputSchema]
"""Returns the features that a model reads of an input; see `psflow.ps_runtime.model.calls.mode_reads.ModeReads`."""


def schema_of(features: Columns, labels: Columns | None) -> InputSchema:
    """Return the schema of a stream, given its first batch."""
    return InputSchema(array_specs(features), () if labels is None else array_specs(labels))


def check_repeatable(schema: InputSchema, where: str) -> None:
    """Refuse a training input with features that an exported model cannot be given.

    Raises
    ------
    InputError
        Names each feature that is not of numbers, booleans or text, and its dtype.
    """
    faults = [
        f"{where}: {f'feature {spec.name!r}' if spec.name else 'the feature'} has dtype {spec.dtype}, which cannot be "
        "given to the exported model:  expected numbers, booleans or text; decode it, or leave it out"
        for spec in schema.features
        if not (spec.is_number or spec.is_text)
    ]
    if faults:
        raise InputError(tuple(faults))


def unused_sentence(where: str, names: Sequence[str], who: str = "the model") -> str:
    """Return a sentence that `who` does not read `names` of an input."""
    some = ", ".join(map(repr, names[:MAX_NAMES])) + (", ..." if len(names) > MAX_NAMES else "")
    return f"{where} has {some}, which {who} does not read: ignored"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Brings an input into the form that a trained model reads: features by name, order, dtypes, scaling."""

    schema: InputSchema | None = None
    where: str = "the input"
    needs_labels: bool = True
    on_unused: Callable[[tuple[str, ...]], None] = lambda names: None
    reads: Reads | None = None

    def __post_init__(self) -> None:
        if self.schema is not None and not self.needs_labels:
            object.__setattr__(self, "schema", self.schema.for_prediction())

    def for_batch(self, features: Columns, labels: Columns | None) -> Self:
        """Return an enforcement that requires the features that the model reads of an input with this batch.

        Other features of training are kept if they are present: a later batch may read what this one does not.

        Raises InputError if one of them is missing.
        """
        schema = self.schema
        if self.reads is None or schema is None or not schema.names or not isinstance(features, dict):
            return self
        if features.keys() == set(schema.names):
            return self
        read = self.reads(_as_in_training(features, schema), labels, schema, self.where)
        names = {*read.names, *(name for name in schema.names if name in features)}
        whole = frozenset(schema.whole.names)
        others = [spec for spec in read.features if spec.name not in whole]
        return replace(self, schema=schema.narrowed(names, others), reads=None)

    def for_dataset(self, dataset: Dataset) -> Self:
        """Return the result of `for_batch` for the first batch of a data set."""
        if self.reads is None or self.schema is None:
            return self
        features, labels = dataset.read(0, 0, min(dataset.batch_size, dataset.num_records))
        if isinstance(features, dict) and dataset.columns and not self.schema.whole.columns:
            matrix = features.pop(MATRIX)
            features |= {name: matrix[:, place] for place, name in enumerate(dataset.columns)}
        return self.for_batch(features, labels)

    def _for_files(self, given: RecordInput, schema: InputSchema) -> Self:
        """Return the result of `for_batch` for a row of zeros of the features whose columns the files have."""
        learned = schema.whole.preprocessing
        assert learned is not None, "a model that was trained on arrays reads files as arrays"
        try:
            columns = given.known_columns(schema, needs_labels=self.needs_labels)
        except InputError:  # reported when the files are opened, or by the kept scan
            return self
        there = learned.computable(columns)
        labels = zeros_of(schema.labels) if schema.labels else None
        return self.for_batch(zeros_of([spec for spec in schema.whole.features if spec.name in there]), labels)

    def _read_of(self, schema: InputSchema) -> InputSchema:
        """Return the features that the model reads of a training input, found with rows of zeros."""
        labels = zeros_of(schema.labels) if schema.labels else None
        return schema if self.reads is None else self.reads(zeros_of(schema.features), labels, schema, self.where)

    def selected(self, dataset: Dataset) -> Dataset:
        """Return `dataset` with only the features that the model reads, values unchanged; ``unused`` lists the others.

        Raises InputError if a feature or column is missing.
        """
        schema = self.schema
        if schema is None:
            return dataset
        if dataset.columns:
            return _selected_columns(dataset, schema, self.where)
        features, unread = _selected_features(dataset.features, schema, self.where)
        return dataset.with_features(features, unused=(*dataset.unused, *unread)) if unread else dataset

    def selected_batches(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the batches of a stream as `selected` does; pass unused features of the first one to `on_unused`."""
        for number, (given, labels) in enumerate(batches):
            yield self.selected_batch(given, f"batch {number} of {self.where}", is_first=not number), labels

    def selected_batch(self, given: Columns, where: str, *, is_first: bool) -> Columns:
        """Return the features of a batch as `selected` does; pass unused ones of the first batch to `on_unused`."""
        if self.schema is None:
            return given
        features, unread = _selected_features(given, self.schema, where)
        if is_first:
            self._report(unread, self.schema)
        return features

    def dataset(self, dataset: Dataset) -> Dataset:
        """Return `dataset` as the model reads it; nothing is copied if nothing differs.

        Raises InputError if a feature is missing, or has another shape, values that its dtype cannot hold, other ids,
        or another scaling; or if the labels differ.
        """
        schema = self.schema
        if schema is None:
            return dataset
        dataset = self.selected(dataset)
        if self._is_as_trained(dataset, schema):
            self._report(dataset.unused, schema)
            return dataset
        dataset = dataset.scaled()
        _check_ids(dataset, schema, self.where)
        given = _by_name(dataset, schema)
        features = enforce_features(given, schema, self.where)
        if dataset.scaling != schema.scaling:
            features = _scaled(features, dataset, schema, self.where)
        labels = dataset.labels
        if self.needs_labels:
            _check_label_name(dataset, schema, self.where)
            labels = _enforce_labels(labels, schema, self.where)
        self._report((*dataset.unused, *_unread(given, schema)), schema)
        return replace(
            dataset,
            features=features,
            labels=labels,
            columns=schema.columns,
            scaling=schema.scaling,
            num_ids={spec.name: spec.num_ids for spec in schema.features if spec.num_ids},
            embedding={spec.name: spec.embedding for spec in schema.features if spec.embedding},
            admit_after={spec.name: spec.lifetime.admit_after for spec in schema.features if spec.num_ids},
            expire_after_steps={
                spec.name: spec.lifetime.expire_after_steps
                for spec in schema.features
                if spec.lifetime.expire_after_steps is not None
            },
        )

    def _is_as_trained(self, dataset: Dataset, schema: InputSchema) -> bool:
        """Return whether stored values need only the scaling, which is theirs anyway."""
        if not dataset.is_stored:
            return False
        found = dataset.schema()
        is_labeled = (found.labels, found.label) == (schema.labels, schema.label)
        is_same = (found.features, found.columns, found.scaling) == (schema.features, schema.columns, schema.scaling)
        return is_same and (is_labeled or not self.needs_labels)

    def records(self, given: RecordInput, non_finite: NonFinite, kept: KeptScan | None = None) -> RecordDataset:
        """Open tabular files as the model reads them; without a schema, learn the preprocessing from them.

        They are scanned, unless a valid scan was `kept`.

        Raises InputError if they cannot be read, lack a column, or have one of another type; or for a cell that
        `non_finite` refuses.
        """
        assert kept is None or self.needs_labels, "kept scans include labels"
        schema = self.schema
        if schema is not None and self.reads is not None:
            schema = self._for_files(given, schema).schema
        opened = None if kept is None else kept.reopened(given, non_finite, schema, self.where)
        if schema is None:
            opened = opened or learn_what_is_read(given, non_finite, self.where, self._read_of)
            if opened.scanned.left_out:
                self.on_unused(opened.scanned.left_out)
            return opened
        opened = opened or given.open(schema, non_finite, self.where, needs_labels=self.needs_labels)
        self._report(opened.unused, schema)
        return opened

    def batches(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield `selected_batches` of a stream as the model reads them.

        Raises InputError as for `dataset`, at the faulty batch.
        """
        for number, (features, labels) in enumerate(batches):
            yield self.batch(features, labels, f"batch {number} of {self.where}")

    def batch(self, features: Columns, labels: Columns | None, where: str) -> Batch:
        """Return a batch of selected features as the model reads it; `where` names the batch."""
        schema = self.schema
        if schema is None:
            return features, labels
        enforced = scale_features(enforce_features(features, schema, where), schema, where)
        return enforced, _enforce_labels(labels, schema, where) if self.needs_labels else labels

    def _report(self, names: tuple[str, ...], schema: InputSchema) -> None:
        unused = tuple(name for name in names if name != schema.label)
        if unused:
            self.on_unused(unused)


def _as_in_training(features: Mapping[str, Any], schema: InputSchema) -> dict[str, Any]:
    """Return features with the dtypes of training if the conversion is possible."""
    cast = dict(features)
    for spec in schema.whole.features:
        with suppress(InputError):
            if spec.name in cast:
                cast |= enforce_features({spec.name: cast[spec.name]}, InputSchema((spec,)), "")
    return cast


def _unread(features: Columns, schema: InputSchema) -> tuple[str, ...]:
    names = frozenset(schema.names)
    return tuple(name for name in features if name not in names) if isinstance(features, dict) and names else ()


def _selected_features(features: Columns, schema: InputSchema, where: str) -> tuple[Columns, tuple[str, ...]]:
    """Return the named features that the model reads, and the names of the others."""
    unread = _unread(features, schema)
    if not isinstance(features, dict) or not unread:
        return features, ()
    if faults := missing_faults(where, "feature", schema.names, list(features)):
        raise InputError(tuple(faults))
    others = frozenset(unread)
    return {name: array for name, array in features.items() if name not in others}, unread


def _selected_columns(dataset: Dataset, schema: InputSchema, where: str) -> Dataset:
    """Return a table with the columns that the model reads, in the order of the model, and the arrays beside it."""
    given = dataset.features
    assert isinstance(given, dict), "a table is a named array"
    wanted = schema.table_columns or dataset.columns  # all columns if the model was trained on an unnamed matrix
    if faults := missing_faults(where, "column", wanted, dataset.columns):
        raise InputError(tuple(faults))
    unread = tuple(name for name in _unread(given, schema) if name != MATRIX)
    features = {name: array for name, array in given.items() if name not in unread}
    if wanted != dataset.columns:
        places = {name: place for place, name in enumerate(dataset.columns)}
        features[MATRIX] = given[MATRIX][:, [places[name] for name in wanted]]
    read = frozenset(wanted)
    unused = (*dataset.unused, *(name for name in dataset.columns if name not in read), *unread)
    return dataset.with_features(features, columns=wanted, unused=unused)


def _by_name(dataset: Dataset, schema: InputSchema) -> Columns:
    """Return the features of a selected `dataset` under the names of the model."""
    given = dataset.features
    if not isinstance(given, dict) or not dataset.columns or schema.columns:
        return given
    matrix = given[MATRIX]
    others = {name: array for name, array in given.items() if name != MATRIX}
    if schema.table_columns:
        return others | {name: matrix[:, place] for place, name in enumerate(schema.table_columns)}
    # The model was trained on a matrix without column names, which may itself have another name.
    is_only_one = len(schema.names) == 1 and dataset.scaling is None
    return others | {schema.names[0] if is_only_one else MATRIX: matrix}


def _scaled(features: Columns, dataset: Dataset, schema: InputSchema, where: str) -> Columns:
    """Return stored features scaled as in training if their scaling differs."""
    if dataset.scaling is None:
        scaled: Columns = scale_features(features, schema, where)
        return scaled
    if schema.scaling is None and dataset.scaling == dataset.scaling.stored:
        return features
    expected = schema.scaling or dataset.scaling.stored
    raise InputError(
        (f"{where} is scaled to {dataset.scaling}, expected {expected} as in training; set its scale to {expected}",)
    )


def _check_ids(dataset: Dataset, schema: InputSchema, where: str) -> None:
    """Refuse features declared with other ids than in training; without a declaration their values decide."""
    declared = {spec.name: spec for spec in dataset.schema().features}
    faults = [
        f"{where}: feature {spec.name!r} is {declared[spec.name]}, expected {spec} as in training; declare it "
        "in the same way, or not at all"
        for spec in schema.features
        if spec.name in dataset.num_ids and _said_of_ids(spec) != _said_of_ids(declared[spec.name])
    ]
    if faults:
        raise InputError(tuple(faults))


def _said_of_ids(spec: ArraySpec) -> tuple[int, int, RowLifetime]:
    return spec.num_ids, spec.embedding, spec.lifetime


def _check_label_name(dataset: Dataset, schema: InputSchema, where: str) -> None:
    """Refuse labels from another column than in training if that column is present."""
    if dataset.label not in (None, schema.label) and schema.label in (*dataset.columns, *dataset.unused):
        raise InputError(
            (f"{where}: the label is {dataset.label!r}, expected {schema.label!r} as in training; correct its label",)
        )


def _enforce_labels(labels: Columns | None, schema: InputSchema, where: str) -> Columns | None:
    """Return labels in the shape of training: ``(batch,)`` and ``(batch, 1)`` become each other."""
    expected = {spec.name: spec for spec in schema.labels}
    if not expected:
        return labels
    if labels is None:
        named = f", {schema.label!r}" if schema.label else ""
        raise InputError((f"{where} has no labels: expected some as in training{named}",))
    found = {spec.name: spec for spec in array_specs(labels)}
    faults = missing_faults(where, "label", list(expected), list(found))
    for name, spec in expected.items():
        if name in found and not spec.is_like(found[name]):
            what = f"label {name!r}" if name else "the label"
            faults.append(f"{where}: {what} is {found[name]}, expected {spec} as in training")
    if faults:
        raise InputError(tuple(faults))
    if not isinstance(labels, dict):
        return labels.reshape(len(labels), *expected[""].shape)
    return labels | {name: labels[name].reshape(len(labels[name]), *spec.shape) for name, spec in expected.items()}
