"""Applies to every input of a model the preprocessing that was learned from its training input."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.comparing import (
    column_differences,
    cross_differences,
    feature_differences,
    label_differences,
)
from psflow.ps_runtime.columns.computing import compute
from psflow.ps_runtime.columns.crossing import Cross, crossing_ids
from psflow.ps_runtime.columns.describing import cross_line, feature_lines, label_line
from psflow.ps_runtime.columns.facts import (
    column_facts,
    column_from,
    cross_facts,
    cross_from,
    feature_facts,
    feature_from,
    label_facts,
    label_from,
    raw_facts,
    raw_from,
)
from psflow.ps_runtime.columns.features import (
    Array,
    Feature,
    FeatureSpec,
    HashIds,
    IsMissing,
    ManyIds,
    ValueWeights,
    VocabularyIds,
    singles,
    spec_of,
)
from psflow.ps_runtime.columns.labels import Label, weights_of
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column, read_columns
from psflow.ps_runtime.columns.values import missing_rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Preprocessing:
    """Turns tables into features, labels and weights; made by `Learner`.

    Notes
    -----
    The features of a row depend on that row alone, so the division of records into tables does not matter. Methods
    change nothing and are thread-safe.

    The last id of each categorical feature is for values without one: missing values without imputation, and unknown
    strings. A cross has no such id: values without an id are crossed as that last id.

    A number too large for float32 becomes infinite.
    """

    columns: tuple[Column, ...]
    features: tuple[Feature, ...]
    label: Label | None = None
    weight: Column | None = None
    keys: tuple[RawColumn, ...] = ()
    num_records: int = 0
    crosses: tuple[Cross, ...] = ()

    @functools.cached_property
    def _column_of(self) -> Mapping[str, Column]:
        return {column.name: column for column in self.columns}

    @property
    def raw_columns(self) -> tuple[RawColumn, ...]:
        """The columns that `apply` reads."""
        return tuple(column.raw for column in self.columns)

    @property
    def specs(self) -> tuple[FeatureSpec, ...]:
        """Name, dtype and shape of each feature, in the order of the features."""
        return (*map(spec_of, self.features), *(cross.spec for cross in self.crosses))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features and of the weights; readers of features treat weights as one."""
        return (*(spec.name for spec in self.specs), *(() if self.weight is None else (self.weight.name,)))

    def computable(self, columns: Collection[str]) -> set[str]:
        """Return the ones of `names` that can be computed from these columns."""
        there = frozenset(columns)
        found = {feature.name for feature in self.features if all(one.column in there for one in singles([feature]))}
        found |= {cross.name for cross in self.crosses if found.issuperset(cross.members)}
        return found if self.weight is None or self.weight.name not in columns else found | {self.weight.name}

    def narrowed(self, names: Collection[str]) -> Self:
        """Return a preprocessing that computes only these features and those that they need."""
        crosses = tuple(cross for cross in self.crosses if cross.name in names)
        needed = {*names, *(member for cross in crosses for member in cross.members)}
        needed |= {spec.weights for spec in self.specs if spec.name in needed}
        features = tuple(feature for feature in self.features if feature.name in needed)
        read = {single.column for single in singles(features)}
        columns = tuple(column for column in self.columns if column.name in read)
        return replace(self, columns=columns, features=features, crosses=crosses)

    def apply(self, table: pa.Table, out: Mapping[str, NDArray[Any]] = MappingProxyType({})) -> dict[str, NDArray[Any]]:
        """Return the features of all rows, in the order of `specs`; a missing number that is not imputed is NaN.

        Features of numbers are written into their array of `out`, if it has one, which is faster than a copy.

        Raises
        ------
        InputError
            Lists all columns that are missing or of another type.
        CellError
            If a value cannot be read as the type of its column, is a fraction where whole numbers are ids, or has no
            logarithm.
        """
        columns = read_columns(table, self.columns)
        features = {feature.name: compute(feature, columns, out.get(feature.name)) for feature in self.features}
        return features | {cross.name: crossing_ids(cross, features) for cross in self.crosses}

    def labels(self, table: pa.Table) -> NDArray[Any]:
        """Return the labels of all rows; see `Label.apply`. ValueError if there are none."""
        if self.label is None:
            raise ValueError("no labels were learned")
        return self.label.apply(table)

    def weights(self, table: pa.Table) -> NDArray[np.float32]:
        """Return the weights of all rows; see `weights_of`. ValueError if there are none."""
        if self.weight is None:
            raise ValueError("there is no column of weights")
        return weights_of(table, self.weight)

    def missing_by_column(self, table: pa.Table) -> dict[str, NDArray[np.int64]]:
        """Return the rows with missing values, by column, for columns that have some and are not imputed.

        The label is included if `table` has it.

        Raises InputError or CellError as `apply` does.
        """
        judged = [self._column_of[name] for name in self._missing_columns]
        if self.label is not None and self.label.column.name in table.column_names:
            judged.append(self.label.column)
        arrays = read_columns(table, judged)
        rows = {name: np.flatnonzero(missing_rows(array)) for name, array in arrays.items()}
        return {name: found for name, found in rows.items() if len(found)}

    @functools.cached_property
    def filled_columns(self) -> frozenset[str]:
        """The columns whose missing values are replaced."""
        return frozenset(self._column_of).difference(self._missing_columns)

    @functools.cached_property
    def string_columns(self) -> frozenset[str]:
        """The columns whose values are handled as strings, whole numbers included: every digit counts."""
        each = ((single.of_each if isinstance(single, ManyIds) else single) for single in singles(self.features))
        return frozenset(single.column for single in each if isinstance(single, VocabularyIds | HashIds))

    @functools.cached_property
    def _missing_columns(self) -> tuple[str, ...]:
        """The columns whose missing values are not replaced."""
        return tuple(
            single.column
            for single in singles(self.features)
            if not isinstance(single, IsMissing | ManyIds | ValueWeights)
            and (isinstance(single, Array) or single.fill is None)
        )

    def lines(self) -> list[str]:
        """Return what was learned: a line for each group, and one for each column with something to report."""
        lines = [*feature_lines(self.features, self._column_of), *map(cross_line, self.crosses)]
        return lines if self.label is None else [*lines, label_line(self.label)]

    def doubts(self) -> list[str]:
        """Return a sentence for each column whose strings are probably numbers or dates."""
        read = [*self.columns, *([] if self.label is None else [self.label.column])]
        return [f"column {column.name!r}: {column.looks_like}" for column in read if column.looks_like]

    def differences(self, other: Preprocessing) -> list[str]:
        """Return the differences in what `other` and this one compute, as sentences; empty if there are none."""
        lines = list(column_differences(self._column_of, other._column_of))
        lines += feature_differences(self.features, other.features)
        lines += cross_differences(self.crosses, other.crosses)
        lines += label_differences(self.label, other.label)
        mine, theirs = ("none" if p.weight is None else repr(p.weight.name) for p in (self, other))
        if mine != theirs:
            lines.append(f"the column of weights is {theirs}, expected {mine}")
        if self.keys != other.keys:
            names = (", ".join(key.name for key in p.keys) or "none" for p in (other, self))
            lines.append("the key columns are {}, expected {}".format(*names))
        return lines

    def to_facts(self) -> dict[str, Any]:
        """Return this preprocessing as plain data, which JSON preserves exactly."""
        return {
            "columns": list(map(column_facts, self.columns)),
            "features": list(map(feature_facts, self.features)),
            "crosses": list(map(cross_facts, self.crosses)),
            "label": None if self.label is None else label_facts(self.label),
            "weight": None if self.weight is None else column_facts(self.weight),
            "keys": list(map(raw_facts, self.keys)),
            "num_records": self.num_records,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Read the result of `to_facts`; KeyError, TypeError or ValueError if it is invalid."""
        made = cls(
            tuple(map(column_from, facts["columns"])),
            tuple(map(feature_from, facts["features"])),
            None if facts["label"] is None else label_from(facts["label"]),
            None if facts["weight"] is None else column_from(facts["weight"]),
            tuple(map(raw_from, facts["keys"])),
            int(facts["num_records"]),
            tuple(map(cross_from, facts["crosses"])),
        )
        if unknown := {single.column for single in singles(made.features)} - made._column_of.keys():
            raise ValueError(f"features use columns that are not read: {', '.join(sorted(unknown))}")
        of_ids = {spec.name for spec in map(spec_of, made.features) if spec.num_ids is not None}
        if unknown := {member for cross in made.crosses for member in cross.members} - of_ids:
            raise ValueError(f"crosses need categorical features, these are not: {', '.join(sorted(unknown))}")
        return made
