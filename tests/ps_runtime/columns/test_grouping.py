from __future__ import annotations

from typing import Any

import pytest

from psflow.ps_runtime.columns.grouping import members_of
from psflow.ps_runtime.errors import UsageError


def test_numeric_takes_what_the_other_groups_leave_wherever_it_stands() -> None:
    groups: dict[str, Any] = {"rest": "numeric", "size": ["rooms", "area"]}
    members = members_of(groups, ["area", "age", "rooms", "tax"], ["town"])
    assert members == {"rest": ("age", "tax"), "size": ("rooms", "area")}
    assert list(members) == ["rest", "size"]


@pytest.mark.parametrize(
    ("groups", "fault"),
    [
        ({"g": ["ages"]}, "group 'g' has 'ages', which is not a column; did you mean 'age'"),
        ({"g": ["town"]}, "group 'g' has 'town', which is not one number per record"),
        ({"g": ["age", "age"]}, "group 'g' has 'age', which is in group 'g' already"),
        ({"g": ["age"], "h": ["age"]}, "group 'h' has 'age', which is in group 'g' already"),
        ({"g": []}, "group 'g' is empty, expected at least one"),
        ({"g": "numeric", "h": "numeric"}, "group 'h' is empty"),
        ({"g": "all"}, "group 'g' is 'all', expected numeric or a list of columns"),
        ({"town": ["age"]}, "group 'town' has the name of a feature"),
    ],
)
def test_a_wrong_group_is_refused(groups: Any, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        members_of(groups, ["age", "area"], ["town"])


def test_a_group_may_have_the_name_of_one_of_its_members() -> None:
    assert members_of({"age": ["age", "area"]}, ["age", "area"], []) == {"age": ("age", "area")}


def test_an_indicator_does_not_hide_a_column() -> None:
    with pytest.raises(UsageError, match="two features are called 'age_is_missing'"):
        members_of({}, ["age", "age_is_missing"], ["age_is_missing"])
