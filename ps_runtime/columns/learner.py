"""Learns the features of all columns from the chunks of one scan of the training input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from psflow.ps_runtime.columns.column_learner import ColumnLearner
from psflow.ps_runtime.columns.crossing import CrossOptions, crosses_of
from psflow.ps_runtime.columns.features import Feature, FeatureGroup, IsMissing, Number, Scalar, Single
from psflow.ps_runtime.columns.grouping import Groups, members_of
from psflow.ps_runtime.columns.intents import Becomes, Intent, intend
from psflow.ps_runtime.columns.labels import LabelLearner, weights_of
from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn, is_list
from psflow.ps_runtime.columns.reading import NUMBERS, Column, read_columns
from psflow.ps_runtime.errors import CellError, InputError, UsageError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Learner:
    """Learns a `Preprocessing` in one pass over the training input.

    Raises
    ------
    UsageError
        Lists all faults of names and options.

    Notes
    -----
    The result does not depend on how records are divided into chunks, except for the rounding of means and standard
    deviations. Missing values, which are nulls and NaN alike, are counted and not learned from.

    Memory is bounded: 0.8 MB for each column with a median or quantiles, and at most 100,000 strings of
    1,000 characters for each vocabulary.
    Not thread-safe.

    Examples
    --------
    >>> import pyarrow as pa
    >>> learner = Learner([RawColumn("age", "int64")], {"age": ColumnOptions(normalize="min_max")}, {}, seed=1)
    >>> learner.update(pa.table({"age": [20, 40]}))
    >>> learner.update(pa.table({"age": [60, None]}))
    >>> learned = learner.finish()
    >>> learned.lines()
    ['age: minimum 20, maximum 60, 1 missing value']
    >>> learned.apply(pa.table({"age": [30, 50]}))
    {'age': array([0.25, 0.75], dtype=float32)}
    """

    def __init__(
        self,
        columns: Sequence[RawColumn],
        options: Mapping[str, ColumnOptions],
        groups: Groups,
        seed: int,
        *,
        label: LabelOptions | None = None,
        weight: str | None = None,
        keys: Sequence[str] = (),
        crosses: Mapping[str, CrossOptions] = MappingProxyType({}),
    ) -> None:
        raw = {column.name: column for column in columns}
        apart = [*([] if label is None else [label.column]), *([] if weight is None else [weight]), *keys]
        _check_names([column.name for column in columns], apart)
        faults: list[str] = []
        if weight is not None and raw[weight].type not in NUMBERS:
            faults.append(f"the weight {weight!r} is {raw[weight].type}, expected numbers")
        faults += [f"{name!r} is a list of values, expected one per record" for name in apart if is_list(raw[name])]
        # a column that is not a feature has only the type that it was read as
        own = {
            name: keys
            for name, keys in options.items()
            if name not in apart or keys.keys != ("type",) or keys.type != raw[name].type
        }
        intents = _or_faults(lambda: intend([column for column in columns if column.name not in apart], own), faults)
        members = None if intents is None else _or_faults(lambda: _members(groups, intents), faults)
        if intents is not None and members is not None:
            of_ids = [intent.name for intent in intents if intent.is_one_id]
            others = [name for group in (members, *members.values()) for name in group]
            others += [intent.name for intent in intents if not intent.is_one_id]
            self._crosses = _or_faults(lambda: crosses_of(crosses, of_ids, others, apart), faults) or ()
        self._label = None
        if label is not None:
            self._label = _or_faults(lambda: LabelLearner(raw[label.column], label), faults)
        if faults or intents is None or members is None:
            raise UsageError(tuple(faults))
        self._members = members
        self._columns = {intent.name: ColumnLearner(intent, seed) for intent in intents}
        self._weight = None if weight is None else Column(raw[weight], "float64")
        self._has_weight = weight is None
        self._keys = tuple(raw[key] for key in keys)
        self._num_records = 0

    def update(self, table: pa.Table) -> None:
        """Add the next chunk.

        Raises
        ------
        InputError
            Lists all columns that are missing or of another type; also if a vocabulary is too large.
        CellError
            If a value cannot be learned from, or is not a weight; its row is the number of the record in the input.
        """
        learned = [learner.column for learner in self._columns.values()]
        try:
            arrays = read_columns(table, [*learned, *([] if self._label is None else [self._label.column])])
            for name, learner in self._columns.items():
                learner.update(arrays[name])
            if self._label is not None:
                self._label.update(arrays[self._label.column.name])
            if self._weight is not None:
                self._has_weight = bool(weights_of(table, self._weight).any()) or self._has_weight
        except CellError as error:
            raise CellError(column=error.column, row=self._num_records + error.row, reason=error.reason) from None
        self._num_records += table.num_rows

    def finish(self) -> Preprocessing:
        """Return the learned preprocessing.

        Raises
        ------
        InputError
            Lists all columns from which nothing can be learned; also if there were no records.
        """
        if not self._num_records:
            raise InputError(("there are no records: nothing can be learned",))
        singles: dict[str, Single] = {}
        faults: list[str] = []
        for learner in self._columns.values():
            made = _or_faults(learner.features, faults)
            singles |= {feature.name: feature for feature in made or ()}
        label = None if self._label is None else _or_faults(self._label.finish, faults)
        if not self._has_weight:
            assert self._weight is not None
            faults.append(f"all weights in column {self._weight.name!r} are 0: expected at least one above 0")
        if faults:
            raise InputError(tuple(faults))
        features: list[Feature] = []
        for name, members in self._members.items():
            features.append(FeatureGroup(name, tuple(_scalar(singles.pop(member)) for member in members)))
        columns = tuple(learner.column for learner in self._columns.values())
        return Preprocessing(
            columns, (*features, *singles.values()), label, self._weight, self._keys, self._num_records, self._crosses
        )


def _or_faults(make: Callable[[], T], faults: list[str]) -> T | None:
    """Return the result of `make`; its errors are appended to `faults`."""
    try:
        return make()
    except UsageError as error:
        faults += error.faults
        return None


def _scalar(feature: Single) -> Scalar:
    assert isinstance(feature, Number | IsMissing), feature  # guaranteed by _members
    return feature


def _check_names(names: Sequence[str], apart: Sequence[str]) -> None:
    """Raise UsageError unless the columns that are not features exist and have one purpose each."""
    faults = [f"column {name!r} occurs {count} times" for name, count in Counter(names).items() if count > 1]
    faults += [f"there is no column {name!r}{did_you_mean(name, names)}" for name in apart if name not in names]
    faults += [
        f"column {name!r} is named {count} times: expected it to be only one of label, weight and key column"
        for name, count in Counter(apart).items()
        if count > 1
    ]
    if not faults and not {*names} - {*apart}:
        faults.append("there is no column for a feature")
    if faults:
        raise UsageError(tuple(faults))


def _members(groups: Groups, intents: Sequence[Intent]) -> dict[str, tuple[str, ...]]:
    numbers: list[str] = []
    others: list[str] = []
    for intent in intents:
        (numbers if intent.becomes is Becomes.NUMBER else others).append(intent.name)
        if intent.options.indicator:
            numbers.append(IsMissing(intent.name).name)
    return members_of(groups, numbers, others)
