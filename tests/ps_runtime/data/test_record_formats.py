"""Record files as a program describes them."""

from __future__ import annotations

from typing import Any

import pytest

import psflow
from psflow.ps_runtime.data.formats import FORMATS
from psflow.ps_runtime.data.record_formats import Csv, RecordFiles
from psflow.ps_runtime.errors import UsageError


def test_every_format_of_record_files_is_a_public_name() -> None:
    kinds = [kind for kind in FORMATS.values() if issubclass(kind, RecordFiles)]
    assert len(kinds) == 6
    assert all(getattr(psflow, kind.__name__) is kind for kind in kinds)


def test_a_path_needs_no_name() -> None:
    assert Csv("a.csv", label="y") == Csv(path="a.csv", label="y")


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"key_columns": "id"}, r"key_columns is 'id': expected a list of names, such as \['id'\]"),
        ({"features": "age"}, r"features is 'age': expected a list of names, such as \['age'\]"),
        ({"label": {"column": "y"}}, "label is {'column': 'y'}: expected the name of a column, or LabelOptions"),
        ({"columns": {"a": {"impute": "mean"}}}, "columns has {'impute': 'mean'} for 'a': expected ColumnOptions"),
        ({"groups": {"dense": "age"}}, "groups has 'age' for 'dense': expected a list of names, or 'numeric'"),
        ({"label": "y", "weight": "y"}, "column 'y' is named by label and weight: name it once"),
    ],
)
def test_a_key_of_another_type_is_refused(keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        Csv("a.csv", **keys)
