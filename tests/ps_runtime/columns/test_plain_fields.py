"""Fields of a dataclass given by a program: kept as plain values, or refused."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from psflow.ps_runtime.columns.crossing import CrossOptions
from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions, Quantiles
from psflow.ps_runtime.columns.plain_fields import keep_plain_fields
from psflow.ps_runtime.errors import ArgumentTypeError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    whole: int = 1
    number: float = 1.0
    truth: bool = False
    text: str = "a"
    place: str | os.PathLike[str] = "a"
    texts: Sequence[str] = ()
    mixed: Sequence[str | int | bool] = ()
    by_name: Mapping[str, Sequence[float] | Literal["all"]] = field(default_factory=dict)
    maybe: int | float | str | None = None

    def __post_init__(self) -> None:
        keep_plain_fields(self)


class Unprintable:
    def __repr__(self) -> str:
        return "first line\nsecond line" + "x" * 1000


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("whole", np.int8(3), 3),
        ("whole", 1e4, 10_000),
        ("whole", np.float32(2), 2),
        ("number", 3, 3),
        ("number", np.float64(0.5), 0.5),
        ("truth", np.True_, True),
        ("text", np.str_("b"), "b"),
        ("place", Path("a/b"), "a/b"),
        ("texts", ["a", "b"], ("a", "b")),
        ("texts", np.array(["a", "b"]), ("a", "b")),
        ("texts", (text for text in "ab"), ("a", "b")),
        ("texts", {"a": 1, "b": 2}.keys(), ("a", "b")),
        ("texts", None, ()),
        ("mixed", ["a", 1, True, np.int64(2), 3.0], ("a", 1, True, 2, 3)),
        ("by_name", {"a": [1, np.float32(0.5)], np.str_("b"): "all"}, {"a": (1, 0.5), "b": "all"}),
        ("by_name", None, {}),
        ("maybe", np.int64(3), 3),
        ("maybe", 2.0, 2.0),
        ("maybe", None, None),
    ],
)
def test_a_value_of_the_kind_is_kept_as_a_plain_one(name: str, given: Any, kept: Any) -> None:
    found = getattr(Described(**{name: given}), name)
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("name", "given", "fault"),
    [
        ("whole", 2.5, "whole is 2.5, expected a whole number"),
        ("whole", True, "whole is True, expected a whole number"),
        ("whole", float("nan"), "whole is nan, expected a whole number"),
        ("whole", float("inf"), "whole is inf, expected a whole number"),
        ("whole", "3", "whole is '3', expected a whole number"),
        ("whole", None, "whole is None, expected a whole number"),
        ("number", "3", "number is '3', expected a number"),
        ("number", False, "number is False, expected a number"),
        ("truth", 1, "truth is 1, expected true or false"),
        ("text", b"a", "text is b'a', expected text"),
        ("text", Path("a"), "text is PosixPath('a'), expected text"),
        ("place", 3, "place is 3, expected text or a path"),
        ("texts", "a", "texts is 'a', expected a list of texts, such as ['a']"),
        ("texts", b"a", "texts is b'a', expected a list of texts"),
        ("texts", {"a"}, "texts is {'a'}, expected a list of texts"),
        ("texts", {"a": 1}, "texts is {'a': 1}, expected a list of texts"),
        ("texts", 3, "texts is 3, expected a list of texts"),
        ("texts", ["a", ["b"]], "texts[1] is ['b'], expected text"),
        ("mixed", [1.5], "mixed[0] is 1.5, expected text, a whole number or true or false"),
        ("by_name", ["a"], "by_name is ['a'], expected a mapping of names to a list of numbers or 'all'"),
        ("by_name", {1: "all"}, "by_name has the key 1, expected text"),
        ("by_name", {"a": [1, "b"]}, "by_name['a'][1] is 'b', expected a number"),
        ("maybe", [], "maybe is [], expected a whole number, a number, text or None"),
        ("text", Unprintable(), f"text is first line second line{'x' * 55}..., expected text"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_place(name: str, given: Any, fault: str) -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        Described(**{name: given})
    assert caught.value.faults == (fault,)


def test_all_faults_come_together() -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        Described(whole="a", text=3)  # type: ignore[arg-type]
    assert caught.value.faults == ("whole is 'a', expected a whole number", "text is 3, expected text")


def test_options_of_numpy_are_those_of_python() -> None:
    assert ColumnOptions(hash_buckets=np.int64(9)) == ColumnOptions(hash_buckets=9)  # type: ignore[arg-type]
    assert ColumnOptions(vocabulary=Path("words.txt")).vocabulary == "words.txt"
    assert ColumnOptions(vocabulary=np.array(["a", "b"])).words == ("a", "b")  # type: ignore[arg-type]
    assert ColumnOptions(buckets=np.array([1.0, 2.0])).edges == (1.0, 2.0)  # type: ignore[arg-type]
    assert type(ColumnOptions(impute=np.float32(0.5)).impute) is float  # type: ignore[arg-type]
    assert LabelOptions("y", np.array([1, 0])).words == ("1", "0")  # type: ignore[arg-type]
    assert CrossOptions(np.array(["a", "b"]), np.int32(5)) == CrossOptions(("a", "b"), 5)  # type: ignore[arg-type]
    assert Quantiles(np.int64(4)) == Quantiles(4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: ColumnOptions(type=3), "type is 3, expected 'number', 'string', .* or None"),  # type: ignore[arg-type]
        (lambda: ColumnOptions(normalize=True), "normalize is True, expected 'standard'"),  # type: ignore[arg-type]
        (lambda: ColumnOptions(embedding="8"), "embedding is '8', expected a whole number"),  # type: ignore[arg-type]
        (lambda: ColumnOptions(buckets={1, 2}), "buckets is {1, 2}, expected a list of"),  # type: ignore[arg-type]
        (lambda: ColumnOptions(buckets=[1, "a"]), r"buckets\[1\] is 'a', expected a num"),  # type: ignore[list-item]
        (lambda: LabelOptions(3), "column is 3, expected text"),  # type: ignore[arg-type]
        (lambda: LabelOptions("y", {"a", "b"}), "classes is {'.', '.'}, expected a list"),  # type: ignore[arg-type]
        (lambda: LabelOptions("y", ["a", None]), r"classes\[1\] is None, expected text"),  # type: ignore[list-item]
        (lambda: CrossOptions(None, 5), "columns is None, expected a list of texts"),  # type: ignore[arg-type]
        (lambda: CrossOptions(["a", "b"], None), "hash_buckets is None, expected a whole"),  # type: ignore[arg-type]
    ],
)
def test_options_of_another_kind_are_errors_of_type(make: Any, fault: str) -> None:
    with pytest.raises(TypeError, match=f"^{fault}") as caught:
        make()
    assert isinstance(caught.value, UsageError)


def test_the_column_of_the_labels_has_a_name() -> None:
    with pytest.raises(UsageError, match="column is '', expected the name of the column of the labels"):
        LabelOptions("")
