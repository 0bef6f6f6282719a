"""The inputs of a trained model, held against the schema of its training input; names decide, not places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from psflow.ps_runtime.data.arrays import Array, Columns, array_specs
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import MATRIX, InputSchema
from psflow.ps_runtime.specs.schema_enforcement import enforce_features, missing_faults, scale_features

__all__ = ["Enforcement", "check_repeatable", "schema_of", "unused_sentence"]

MAX_NAMES = 10
"""Of those that a sentence lists."""
Batch = tuple[Columns, Columns | None]


def schema_of(features: Columns, labels: Columns | None) -> InputSchema:
    """Return the schema of a stream, of which this is the first batch."""
    return InputSchema(array_specs(features), () if labels is None else array_specs(labels))


def check_repeatable(schema: InputSchema, where: str) -> None:
    """Refuse a training input with features that nobody could give the trained model again.

    Raises
    ------
    InputError
        Names each feature that is not of numbers or booleans, and its dtype.
    """
    faults = [
        f"{where}: {f'feature {spec.name!r}' if spec.name else 'the feature'} has dtype {spec.dtype}, which nobody can "
        "give to the exported model again: expected numbers or booleans; encode it, for example as numbers of a "
        "vocabulary, or leave it out"
        for spec in schema.features
        if not spec.is_number
    ]
    if faults:
        raise InputError(tuple(faults))


def unused_sentence(where: str, names: Sequence[str]) -> str:
    """Say that an input has `names`, which the model does not read."""
    some = ", ".join(map(repr, names[:MAX_NAMES])) + (", ..." if len(names) > MAX_NAMES else "")
    return f"{where} has {some}, which the model does not read: ignored"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Brings an input into the form that a trained model reads: its features by name, their order, dtypes and scaling.

    Parameters
    ----------
    schema : InputSchema or None
        Of the training input; None: this is the training input itself, and nothing is changed.
    where : str
        What error texts call the input, such as ``the eval input``.
    needs_labels : bool
        Whether labels must be there if there were some in training.
    on_unused : callable
        Told once what the model does not read and is left out, if there is something.
    """

    schema: InputSchema | None = None
    where: str = "the input"
    needs_labels: bool = True
    on_unused: Callable[[tuple[str, ...]], None] = lambda names: None

    def dataset(self, dataset: Dataset) -> Dataset:
        """Return `dataset` as the model reads it; nothing is copied if nothing differs.

        Raises
        ------
        InputError
            If a feature is missing, or has another shape, values that its dtype cannot hold, or another scaling; or if
            the labels differ.
        """
        schema = self.schema
        if schema is None:
            return dataset
        given, left_out = _by_name(dataset, schema, self.where)
        features = enforce_features(given, schema, self.where)
        if dataset.scaling != schema.scaling:
            features = _scaled(features, dataset, schema, self.where)
        if self.needs_labels:
            _check_label_name(dataset, schema, self.where)
            _check_labels(dataset.labels, schema, self.where)
        self._tell((*dataset.unused, *left_out), schema)
        return replace(dataset, features=features, columns=schema.columns, scaling=schema.scaling)

    def batches(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the batches of a stream as the model reads them, whose values are as they are stored.

        Raises
        ------
        InputError
            As `dataset` does, at the batch.
        """
        schema = self.schema
        if schema is None:
            yield from batches
            return
        for number, (features, labels) in enumerate(batches):
            if not number:
                self._tell(_unread(features, schema), schema)
            where = f"batch {number} of {self.where}"
            enforced = scale_features(enforce_features(features, schema, where), schema, where)
            if self.needs_labels:
                _check_labels(labels, schema, where)
            yield enforced, labels

    def _tell(self, names: tuple[str, ...], schema: InputSchema) -> None:
        unused = tuple(name for name in names if name != schema.label)
        if unused:
            self.on_unused(unused)


def _unread(features: Columns, schema: InputSchema) -> tuple[str, ...]:
    is_named = isinstance(features, dict) and schema.names
    return tuple(name for name in features if name not in schema.names) if is_named else ()


def _by_name(dataset: Dataset, schema: InputSchema, where: str) -> tuple[Columns, tuple[str, ...]]:
    """Return the features of `dataset` under the names of the model, and the names that the model does not read."""
    given = dataset.features
    if not isinstance(given, dict):
        return given, ()
    columns: tuple[str, ...] = ()
    if dataset.columns:
        given, columns = _by_column(dataset, given, schema, where)
    return given, (*columns, *_unread(given, schema))


def _by_column(
    dataset: Dataset, features: dict[str, Array], schema: InputSchema, where: str
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return what the model reads of a table, and the columns that it does not read."""
    matrix = features[MATRIX]
    others = {name: array for name, array in features.items() if name != MATRIX}
    wanted = schema.table_columns
    if not wanted:  # it was trained on a matrix whose columns have no names, and which itself may have another name
        is_only_one = len(schema.names) == 1 and dataset.scaling is None
        return others | {schema.names[0] if is_only_one else MATRIX: matrix}, ()
    if faults := missing_faults(where, "column", wanted, dataset.columns):
        raise InputError(tuple(faults))
    unused = tuple(name for name in dataset.columns if name not in wanted)
    places = [dataset.columns.index(name) for name in wanted]
    if not schema.columns:
        return others | {name: matrix[:, place] for name, place in zip(wanted, places, strict=True)}, unused
    return others | {MATRIX: matrix if dataset.columns == wanted else matrix[:, places]}, unused


def _scaled(features: Columns, dataset: Dataset, schema: InputSchema, where: str) -> Columns:
    """Return features that have another scaling than in training with that of training, if they are as stored."""
    if dataset.scaling is None:
        scaled: Columns = scale_features(features, schema, where)
        return scaled
    if schema.scaling is None and dataset.scaling == dataset.scaling.stored:
        return features
    expected = schema.scaling or dataset.scaling.stored
    raise InputError(
        (f"{where} is scaled to {dataset.scaling}, expected {expected} as in training; set its scale to {expected}",)
    )


def _check_label_name(dataset: Dataset, schema: InputSchema, where: str) -> None:
    """Refuse labels from another column than in training, if that one is there."""
    if dataset.label not in (None, schema.label) and schema.label in (*dataset.columns, *dataset.unused):
        raise InputError(
            (f"{where}: the label is {dataset.label!r}, expected {schema.label!r} as in training; correct its label",)
        )


def _check_labels(labels: Columns | None, schema: InputSchema, where: str) -> None:
    expected = {spec.name: spec for spec in schema.labels}
    if not expected:
        return
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
