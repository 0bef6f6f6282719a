from __future__ import annotations

import math
from typing import Any

import pytest

from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions, Quantiles
from psflow.ps_runtime.errors import UsageError


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"type": "int"}, "type is 'int', expected one of number, string, .*; did you mean 'int64'"),
        ({"normalize": "minmax"}, "normalize is 'minmax', expected one of standard, .*did you mean 'min_max'"),
        (
            {"impute": [1]},
            r"impute is \[1\], expected 'mean', 'median', 'most_frequent', true or false, .*, text or None",
        ),
        ({"impute": math.nan}, "impute is nan, expected a finite number"),
        ({"impute": 10**400}, "impute is 10+, expected a finite number"),
        ({"buckets": [0, 10**400]}, "buckets has 10+, expected finite edges"),
        ({"indicator": "yes"}, "indicator is 'yes', expected true or false$"),
        ({"hash_buckets": 0}, "hash_buckets is 0, expected a whole number from 1 to 4,611,686,018,427,387,903"),
        ({"num_ids": 0}, "num_ids is 0, expected a whole number from 1 to 4,611,686,018,427,387,903"),
        ({"num_ids": 3, "impute": 3}, "impute is 3, expected an id from 0 to 2"),
        ({"num_ids": 3, "impute": 0.5}, "impute is 0.5, expected an id from 0 to 2"),
        ({"num_ids": 3, "impute": "mean"}, "impute: mean is for numbers, not for num_ids"),
        ({"num_ids": 3, "buckets": [1]}, "num_ids and buckets contradict each other"),
        ({"hash_buckets": True}, "hash_buckets is True, expected a whole number"),
        (
            {"hash_buckets": 2**62},
            "is 4611686018427387904, expected a whole number from 1 to 4,611,686,018,427,387,903",
        ),
        ({"embedding": 2.5}, "embedding is 2.5, expected a whole number"),
        ({"admit_after": 0}, "admit_after is 0, expected a whole number >= 1"),
        ({"admit_after": None}, "admit_after is None, expected a whole number$"),
        ({"expire_after_steps": 0}, "expire_after_steps is 0, expected a whole number >= 1"),
        ({"expire_after_steps": True}, "expire_after_steps is True, expected a whole number or None"),
        ({"vocabulary": ""}, "vocabulary is empty, expected auto, a list of strings or a path"),
        ({"vocabulary": []}, "vocabulary is empty: expected at least one string"),
        ({"vocabulary": [1.5]}, r"vocabulary\[0\] is 1.5, expected text, a whole number or true or false"),
        (
            {"vocabulary": 7},
            "vocabulary is 7, expected text, a path, a list of texts or whole numbers or booleans or None",
        ),
        ({"vocabulary": ["a", "b", "a"]}, "vocabulary has 'a' twice"),
        ({"vocabulary": [1, "1"]}, "vocabulary has '1' twice"),
        ({"vocabulary": list(range(100_001))}, "vocabulary has 100,001 strings, at most 100,000 .* set hash_buckets"),
        ({"buckets": [1, 3, 3]}, "buckets has 3 after 3: expected ascending edges"),
        ({"buckets": [1, math.inf]}, "buckets has inf, expected finite edges"),
        ({"buckets": []}, "buckets is empty: expected at least one edge"),
        ({"buckets": "deciles"}, "buckets is 'deciles', expected a list of numbers, quantiles or {quantiles: N}"),
        ({"vocabulary": "auto", "hash_buckets": 9}, "vocabulary and hash_buckets contradict each other"),
        ({"normalize": "standard", "buckets": [1]}, "normalize and buckets contradict each other"),
        ({"normalize": "log1p", "embedding": 4}, "normalize and embedding contradict each other"),
        ({"normalize": "log1p", "admit_after": 4}, "normalize and admit_after 4 contradict each other"),
        ({"impute": "mean", "vocabulary": "auto"}, "impute: mean is for numbers, not for vocabulary"),
        ({"impute": "reed", "vocabulary": ["red"]}, "impute is 'reed', which is not in the vocabulary; did you mean"),
    ],
)
def test_values_and_contradictions_are_refused_at_birth(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        ColumnOptions(**options)


def test_all_faults_come_together() -> None:
    with pytest.raises(UsageError) as caught:
        ColumnOptions(type="x", normalize="y", embedding=0)  # type: ignore[arg-type]
    assert [fault.split(" ")[0] for fault in caught.value.faults] == ["type", "normalize", "embedding"]


@pytest.mark.parametrize("number", [1, 10_001])
def test_the_number_of_quantiles_has_a_range(number: int) -> None:
    with pytest.raises(UsageError, match="expected a whole number from 2 to 10,000"):
        Quantiles(number)


@pytest.mark.parametrize("number", [2.5, True, "4", None])
def test_the_number_of_quantiles_is_whole(number: Any) -> None:
    with pytest.raises(TypeError, match=f"quantiles is {number!r}, expected a whole number$"):
        Quantiles(number)


def test_quantiles_are_ten_if_no_number_is_said() -> None:
    assert ColumnOptions(buckets="quantiles").quantiles == 10
    assert ColumnOptions(buckets=Quantiles(4)).quantiles == 4
    assert ColumnOptions(buckets=[1]).quantiles is None


def test_options_as_lists_and_as_tuples_are_equal() -> None:
    assert ColumnOptions(vocabulary=["a"]) == ColumnOptions(vocabulary=("a",))
    assert hash(ColumnOptions(buckets=[1])) == hash(ColumnOptions(buckets=(1,)))
    assert LabelOptions("y", ["a"]) == LabelOptions("y", ("a",))


@pytest.mark.parametrize("classes", [[], ["a", "a"], "a", [0.5]])
def test_classes_are_strings_each_once(classes: Any) -> None:
    with pytest.raises(UsageError, match="classes"):
        LabelOptions("y", classes)
