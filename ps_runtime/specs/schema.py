"""The schema of a model's training input: features by name, with dtypes, shapes, columns and scaling."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.features import Standard
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.row_lifetime import UNLIMITED, RowLifetime
from psflow.ps_runtime.errors import InputError, did_you_mean
from psflow.ps_runtime.specs.input import ColumnSpec, LibSvmReading, TextReading, column_differences, text_from

MATRIX = "features"
"""Name of the single feature array of a table with named columns."""
ANY_LENGTH = -1
"""In the shape of an array of a request: rows of any length, as in the signatures of MLflow."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array of a batch."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_ids: int = 0
    embedding: int = 0
    lifetime: RowLifetime = UNLIMITED
    combiner: str = ""
    weights: str = ""

    def __str__(self) -> str:
        of_ids = f" of {self.num_ids} ids" if self.num_ids else ""
        embedding = f"embedding {self.embedding}" if self.embedding else ""
        return ", ".join(filter(None, (f"{self.dtype}{list(self.shape)}{of_ids}", embedding, str(self.lifetime))))

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers or booleans."""
        return np.dtype(self.dtype).kind in "biufc"

    @property
    def is_text(self) -> bool:
        """Whether it holds strings."""
        return np.dtype(self.dtype).kind == "U"

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Return whether rows may have this shape; ``ANY_LENGTH`` in that of the array stands for any length."""
        return len(shape) == len(self.shape) and all(
            wanted in (size, ANY_LENGTH) for wanted, size in zip(self.shape, shape, strict=True)
        )

    def is_like(self, other: ArraySpec) -> bool:
        """Return whether labels of both are interchangeable, perhaps after a reshape to one number or string a row.

        A file may contain only integers by chance, so dtypes of numbers may differ.
        """
        return self.flat.shape == other.flat.shape and self.is_number == other.is_number

    @property
    def flat(self) -> ArraySpec:
        """The same with rows of shape () instead of (1,)."""
        return replace(self, shape=()) if self.shape == (1,) else self


@dataclass(frozen=True, slots=True)
class Scaling:
    """Maps stored whole numbers from 0 to `largest` to features in the range [`low`, `high`].

    Examples
    --------
    >>> Scaling(255, 0, 1).apply(np.array([0, 51, 255], np.uint8))
    array([0. , 0.2, 1. ], dtype=float32)
    """

    largest: int
    low: float
    high: float

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]"

    @property
    def stored(self) -> Scaling:
        """The scaling that leaves values unchanged."""
        return Scaling(self.largest, 0.0, float(self.largest))

    def apply(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """Return the features for `stored` values in which `fault` finds no fault."""
        features: NDArray[np.float32] = np.divide(
            stored, np.float32(self.largest / (self.high - self.low)), dtype=np.float32
        )
        if self.low:
            features += np.float32(self.low)
        return features

    def fault(self, values: NDArray[Any]) -> str | None:
        """Return a sentence on one of `values` that is not a stored value, or None; NaN and infinity are ignored."""
        is_stored = (values >= 0) & (values <= self.largest) & (values == np.floor(values)) | ~np.isfinite(values)
        if is_stored.all():
            return None
        row = int(np.argmin(is_stored.reshape(len(values), -1).all(axis=1)))
        value = values[row][~is_stored[row]].flat[0]
        return f"has {value.item()!r} in row {row}, expected whole numbers from 0 to {self.largest}, as they are stored"


@dataclass(frozen=True, slots=True)
class InputSchema:
    """The structure of a model's training input; later inputs of the model are compared with it.

    Parameters
    ----------
    features, labels : tuple of ArraySpec
        The arrays of a batch; labels are empty without labels.
    columns : tuple of str
        Names of the columns of the feature `MATRIX` in order, if the input is a table; else empty.
    label : str or None
        The name of the column or array of the labels, if it has one.
    scaling : Scaling or None
        How the feature `MATRIX` is computed from stored values; None: unscaled, as far as psflow knows.
    preprocessing : Preprocessing or None
        How features and labels are computed from the columns of tabular files; None: the input comes from elsewhere.
    text : TextReading, LibSvmReading or None
        How text files were read, if the input is text: further files are read in the same way.
    weight_column : str or None
        The feature that holds the weights of examples for an Estimator, unless tabular files define it.
    feature_columns : tuple of ColumnSpec
        The feature columns that the layers of the model read.
    whole_input : InputSchema or None
        The schema of all features of the training input, if training reads only some of them; see `whole`.
    """

    features: tuple[ArraySpec, ...]
    labels: tuple[ArraySpec, ...] = ()
    columns: tuple[str, ...] = ()
    label: str | None = None
    scaling: Scaling | None = None
    preprocessing: Preprocessing | None = None
    text: TextReading | LibSvmReading | None = None
    weight_column: str | None = None
    feature_columns: tuple[ColumnSpec, ...] = ()
    whole_input: Self | None = None

    @property
    def whole(self) -> Self:
        """The schema of all features of the training input: other modes may read features that training does not."""
        return self.whole_input or self

    @property
    def na_values(self) -> tuple[str, ...] | None:
        """The strings that mean a missing value, where the training input is delimited text; None: no strings do."""
        return self.text.na_values if isinstance(self.text, TextReading) else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features; empty if the model reads one unnamed array."""
        return tuple(spec.name for spec in self.features if spec.name)

    @property
    def weight(self) -> str | None:
        """The feature that holds the weights of the records; None: equal weights."""
        weight = None if self.preprocessing is None else self.preprocessing.weight
        return self.weight_column if weight is None else weight.name

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The class names of the labels 0, 1, ...; None: labels are numbers."""
        label = None if self.preprocessing is None else self.preprocessing.label
        return None if label is None else label.classes

    @property
    def label_normalizer(self) -> Standard | None:
        """Mean and deviation of labels that a regressor normalizes; None: labels are used unchanged."""
        label = None if self.preprocessing is None else self.preprocessing.label
        return None if label is None else label.normalizer

    @property
    def is_table(self) -> bool:
        """Whether the model reads only the columns of a table."""
        return bool(self.columns) and len(self.features) == 1

    @property
    def table_columns(self) -> tuple[str, ...]:
        """The columns of a table that are read, in order; empty: all of them."""
        if self.preprocessing is not None:
            return tuple(column.name for column in self.preprocessing.raw_columns)
        is_flat = bool(self.names) and all(spec.shape == () for spec in self.features)
        return self.columns or (self.names if is_flat else ())

    def unscaled(self) -> InputSchema:
        """Return the schema of the same input with stored values."""
        return self if self.scaling is None else replace(self, scaling=self.scaling.stored)

    def weighted_by(self, weight_column: str | None, where: str) -> InputSchema:
        """Return the schema of the same input with a feature as weights; None: the weights of the input itself.

        Parameters
        ----------
        weight_column : str or None
            As set by the user.
        where : str
            The name of the input in errors, such as ``the train input``.

        Raises
        ------
        InputError
            If it is not a feature, not a number for each example, or differs from the weights of tabular files.
        """
        if weight_column is None or weight_column == self.weight:
            return self
        if self.preprocessing is not None:
            raise InputError(
                (
                    f"weight_column is {weight_column!r}, but the weights of {where} are {_shown_weight(self.weight)}: "
                    f"the input of tabular files names them; set its weight to {weight_column!r}",
                )
            )
        spec = next((spec for spec in self.features if spec.name == weight_column), None)
        if spec is None:
            names = ", ".join(map(repr, self.names)) or "an array without a name"
            near = did_you_mean(weight_column, self.names)
            raise InputError((f"weight_column is {weight_column!r}, but the features of {where} are {names}{near}",))
        if not spec.is_number or spec.num_ids or spec.shape not in ((), (1,)):
            raise InputError((f"weight_column {weight_column!r} of {where} is {spec}, expected one number a row",))
        return replace(self, weight_column=weight_column)

    def with_flat_labels(self) -> InputSchema:
        """Return the schema of the same input with labels ``(batch,)`` instead of ``(batch, 1)``."""
        return replace(self, labels=tuple(spec.flat for spec in self.labels))

    def narrowed(self, names: Collection[str], others: Sequence[ArraySpec] = ()) -> Self:
        """Return the schema of a model that reads some features of the `whole` input.

        Parameters
        ----------
        names : collection of str
            The features that it reads. Those from which they are computed stay, too.
        others : sequence of ArraySpec
            Further features, which the training input lacks.
        """
        whole = self.whole
        preprocessing = None if whole.preprocessing is None else whole.preprocessing.narrowed(names)
        kept = {*names, *(() if preprocessing is None else preprocessing.names)}
        features = tuple(spec for spec in whole.features if spec.name in kept)
        if len(features) == len(whole.features) and not others:
            return whole
        has_matrix = MATRIX in kept
        return replace(
            whole,
            features=(*features, *others),
            columns=whole.columns if has_matrix else (),
            scaling=whole.scaling if has_matrix else None,
            preprocessing=preprocessing,
            weight_column=whole.weight_column if whole.weight_column in kept else None,
            whole_input=whole,
        )

    def for_prediction(self) -> InputSchema:
        """Return the schema of the features for prediction: weights are for training and evaluation."""
        return replace(self, features=tuple(spec for spec in self.features if spec.name != self.weight_column))

    def differences(self, other: InputSchema) -> list[str]:
        """Return sentences on the differences of `other` from this one."""
        of_columns = column_differences(self.feature_columns, other.feature_columns)
        if self.preprocessing is not None and other.preprocessing is not None:
            return [*self.preprocessing.differences(other.preprocessing), *of_columns]
        lines = [*of_columns, *_array_lines("feature", self.features, other.features, operator.eq)]
        lines += _column_lines(self.columns, other.columns)
        if self.scaling != other.scaling:
            lines.append(
                f"the features are scaled to {other.scaling or 'nothing'}, expected {self.scaling or 'nothing'}"
            )
        if self.label != other.label:
            lines.append(f"the label is {_shown(other.label)}, expected {_shown(self.label)}")
        return [*lines, *_array_lines("label", self.labels, other.labels, _are_same_labels)]

    def to_facts(self) -> dict[str, Any]:
        """Return the schema as plain data."""
        if self.whole_input is not None:
            return {**self.whole_input.to_facts(), "read": list(self.names)}
        return {
            "features": [_facts_of(spec) for spec in self.features],
            "labels": [_facts_of(spec) for spec in self.labels],
            "columns": list(self.columns),
            "label": self.label,
            "scaling": None if self.scaling is None else asdict(self.scaling),
            "preprocessing": None if self.preprocessing is None else self.preprocessing.to_facts(),
            "text": None if self.text is None else asdict(self.text),
            "weight_column": self.weight_column,
            "feature_columns": [spec.to_facts() for spec in self.feature_columns],
            "read": None,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Decode the result of `to_facts`; KeyError, TypeError or ValueError if it is invalid."""
        scaling = facts["scaling"]
        whole = cls(
            _specs_from(facts["features"]),
            _specs_from(facts["labels"]),
            tuple(map(str, facts["columns"])),
            None if facts["label"] is None else str(facts["label"]),
            None
            if scaling is None
            else Scaling(int(scaling["largest"]), float(scaling["low"]), float(scaling["high"])),
            None if facts["preprocessing"] is None else Preprocessing.from_facts(facts["preprocessing"]),
            None if facts["text"] is None else text_from(facts["text"]),
            None if facts["weight_column"] is None else str(facts["weight_column"]),
            tuple(map(ColumnSpec.from_facts, facts["feature_columns"])),
        )
        return whole if facts["read"] is None else whole.narrowed(tuple(map(str, facts["read"])))


def _facts_of(spec: ArraySpec) -> dict[str, Any]:
    return asdict(spec) | {"shape": list(spec.shape)}


def _specs_from(facts: Sequence[Mapping[str, Any]]) -> tuple[ArraySpec, ...]:
    return tuple(
        ArraySpec(
            str(f["name"]),
            str(f["dtype"]),
            tuple(map(int, f["shape"])),
            int(f["num_ids"]),
            int(f["embedding"]),
            RowLifetime.from_facts(f["lifetime"]),
            str(f["combiner"]),
            str(f["weights"]),
        )
        for f in facts
    )


def _are_same_labels(mine: ArraySpec, theirs: ArraySpec) -> bool:
    """Whether a model_fn that was written for one gets the other unchanged, so without a reshape."""
    return mine.shape == theirs.shape and mine.is_like(theirs)


def _array_lines(
    noun: str,
    mine: Iterable[ArraySpec],
    theirs: Iterable[ArraySpec],
    fits: Callable[[ArraySpec, ArraySpec], bool],
) -> list[str]:
    ours, others = ({spec.name: spec for spec in specs} for specs in (mine, theirs))
    lines = [f"{noun} {name!r} is missing" for name in ours if name not in others]
    lines += [f"{noun} {name!r} is new" for name in others if name not in ours]
    return lines + [
        f"{noun} {name!r} is {others[name]}, expected {spec}"
        for name, spec in ours.items()
        if name in others and not fits(spec, others[name])
    ]


def _column_lines(mine: Sequence[str], theirs: Sequence[str]) -> list[str]:
    if not mine or not theirs:  # then the differences of the features are reported
        return ["the columns have names" if theirs else "the columns have no names"] * (bool(mine) != bool(theirs))
    lines = [f"column {name!r} is missing" for name in mine if name not in theirs]
    lines += [f"column {name!r} is new" for name in theirs if name not in mine]
    if not lines and tuple(mine) != tuple(theirs):
        place = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
        lines.append(
            f"the columns are in another order: column {place + 1} is {theirs[place]!r}, expected {mine[place]!r}"
        )
    return lines


def _shown_weight(name: str | None) -> str:
    return "none" if name is None else repr(name)


def _shown(name: str | None) -> str:
    return "unnamed" if name is None else repr(name)
