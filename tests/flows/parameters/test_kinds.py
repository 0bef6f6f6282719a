"""Parameters whose values are objects themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_type_hints

import pytest
from pydantic import ValidationError

from psflow import DNNLinearCombinedClassifier, LinearClassifier
from psflow.flows.parameters import kinds
from psflow.flows.parameters.kinds import CheckedParameters, keys_of, parameters_of
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.keys import Key


@dataclass(frozen=True)
class Quantiles:
    quantiles: Annotated[int, Key("Number of buckets.", ge=2)] = 10


@dataclass(frozen=True)
class Column:
    """What becomes of a column."""

    buckets: Annotated[Sequence[float] | Literal["quantiles"] | Quantiles | None, Key("Edges.")] = None
    impute: str | float | None = None

    def __post_init__(self) -> None:
        if self.impute == "never":
            raise UsageError(("impute is 'never', expected a value",))


@dataclass(frozen=True)
class Table:
    path: str | Sequence[str]
    columns: Annotated[Mapping[str, Column], Key("By column.")] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str] | Literal["numeric"]] = field(default_factory=dict)


TABLE = parameters_of(Table, "TableInput", CheckedParameters, {"format": "table"}, {})


def test_a_mapping_of_dataclasses_is_built() -> None:
    given = {
        "format": "table",
        "path": ["a", "b"],
        "columns": {
            "age": {"buckets": [1.0, 2.0]},
            "pay": {"buckets": {"quantiles": 4}},
            "x": {"buckets": "quantiles"},
        },
        "groups": {"dense": ["age", "x"], "all": "numeric"},
    }
    assert TABLE.model_validate(given).build() == Table(
        ("a", "b"),
        {"age": Column((1.0, 2.0)), "pay": Column(Quantiles(4)), "x": Column("quantiles")},
        {"dense": ("age", "x"), "all": "numeric"},
    )
    assert TABLE.model_validate({"format": "table", "path": "a"}).build() == Table("a")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"age": {"bucket": [1.0]}}, "columns.age.bucket"),
        ({"age": {"buckets": {"quantiles": 1}}}, "greater than or equal to 2"),
        ({"age": {"impute": "never"}}, "impute is 'never', expected a value"),
        ({"age": 3}, "columns.age"),
        (["age"], "columns"),
    ],
)
def test_a_wrong_value_below_a_mapping_is_refused(columns: object, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        TABLE.model_validate({"format": "table", "path": "a", "columns": columns})


def test_a_configuration_names_features_and_has_no_columns_of_python() -> None:
    keys = keys_of(LinearClassifier).keys() | keys_of(DNNLinearCombinedClassifier).keys()
    assert keys >= {"n_classes", "linear_feature_columns", "dnn_feature_columns"}
    assert not keys & {"feature_columns", "sparse_combiner", "linear_sparse_combiner", "model_dir"}


def test_a_dataclass_is_looked_at_once_however_many_columns_a_configuration_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[Any] = []

    def counted(kind: Any, **options: Any) -> dict[str, Any]:
        looks.append(kind)
        return get_type_hints(kind, **options)

    monkeypatch.setattr(kinds, "get_type_hints", counted)
    columns = {f"c{i}": {"impute": i} for i in range(30)}
    assert len(TABLE.model_validate({"format": "table", "path": "a", "columns": columns}).build().columns) == 30
    assert len(looks) <= len([Table, Column])
