"""The fault of a value that matches no alternative has the key, the expected and the actual value."""

from __future__ import annotations

from typing import Any

import pytest

from psflow.flows.parameters.input import InputParameters
from psflow.flows.parameters.parsing import parse_as
from psflow.ps_runtime.errors import ConfigError


def faults(format_name: str = "csv", **keys: Any) -> list[str]:
    data = {"format": format_name, "path": "t", **keys}
    with pytest.raises(ConfigError) as refused:
        parse_as(InputParameters, {"train": data, "eval": {"format": "csv", "path": "t", "label": "y"}}, {})
    return list(refused.value.faults)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"label": [1]}, ["label: expected a string, or a mapping, got [1]"]),
        ({"label": {"column": 3}}, ["label.column: expected a string, got 3"]),
        (
            {"label": {"classes": 3}},
            ["label.column: is missing", "label.classes: expected a list, or 'auto', got 3"],
        ),
        (
            {"label": {"column": "y", "classes": [1.5, {}]}},
            [
                "label.classes.0: expected a string, or an integer, or true or false, got 1.5",
                "label.classes.1: expected a string, or an integer, or true or false, got {}",
            ],
        ),
        (
            {"label": {"column": "y", "classes": "auro"}},
            ["label.classes: expected a list, or 'auto', got 'auro'; did you mean 'auto'?"],
        ),
        ({"groups": {"f": 3}}, ["groups.f: expected a list, or 'numeric', got 3"]),
        ({"groups": {"f": ["a", 1]}}, ["groups.f.1: expected a string, got 1"]),
        (
            {"columns": {"str": {"vocabulary": 3}}},
            ["columns.str.vocabulary: expected a string, or a list, got 3"],
        ),
        (
            {"columns": {"a": {"impute": [1]}}},
            [
                "columns.a.impute: expected 'mean', 'median' or 'most_frequent', or true or false, or an integer, or a "
                "number, or a string, got [1]"
            ],
        ),
        (
            {"columns": {"a": {"buckets": 2}, "b": {"buckets": {"quantiles": "x"}}}},
            [
                "columns.a.buckets: expected a list, or 'quantiles', or a mapping, got 2",
                "columns.b.buckets.quantiles: expected an integer, got 'x'",
            ],
        ),
        ({"columns": {"a": 3}, "epochs": "x"}, ["columns.a: expected a mapping, got 3"]),
    ],
)
def test_the_faults_of_the_alternative_that_was_meant_are_reported(keys: dict[str, Any], expected: list[str]) -> None:
    told = faults(**{"label": "y", **keys})
    assert [fault.removeprefix("train.") for fault in told if ".epochs" not in fault] == expected


def test_what_an_alternative_finds_wrong_in_a_value_of_its_kind_is_reported_alone() -> None:
    [told] = faults(label={"column": "y", "classes": "auto", "normalize": "standard"})
    assert told.startswith("train.label")
    assert "expected a string" not in told


def test_a_format_is_no_key() -> None:
    assert faults("libsvm", label=3) == ["train.label: expected a string, or a mapping, got 3"]
