"""Operations that count as reading a feature, and others."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.values import ModelValues, WatchedFeatures, observed
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys

GIVEN = {"x": np.ones(2), "row": np.arange(2)}
ALL = None


def keywords(**features: Any) -> None:
    pass


def matched(features: Any) -> None:
    match features:
        case {"x": _}:
            pass


def popped(features: Any) -> None:
    features.pop("x")
    features.pop("z", None)


def removed(features: Any) -> None:
    del features["x"]
    assert "x" not in features
    with pytest.raises(KeyError):
        del features["x"]
    with pytest.raises(KeyError):
        del features["z"]


def emptied(features: Any) -> None:
    features.clear()
    assert "x" not in features
    assert "row" not in features


def replaced(features: Any) -> None:
    features["double"] = 2 * features["x"]
    features["double"].sum()


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda features: features["x"], {"x"}),
        (lambda features: features.get("x"), {"x"}),
        (lambda features: features.get("z"), set()),
        (lambda features: "x" in features, set()),
        (lambda features: features.setdefault("x", 1), {"x"}),
        (lambda features: features.setdefault("z", 1), set()),
        (popped, {"x"}),
        (removed, {"x"}),
        (emptied, set()),
        (lambda features: features.update(z=1), set()),
        (lambda features: features.__ior__({"z": 1}), set()),
        (replaced, {"x"}),
        (lambda features: None, set()),
        (dict, ALL),
        (list, ALL),
        (len, ALL),
        (bool, ALL),
        (matched, ALL),  # it asks for the length
        (lambda features: {**features}, ALL),
        (lambda features: keywords(**features), ALL),
        (lambda features: features.keys(), ALL),
        (lambda features: features.values(), ALL),
        (lambda features: features.items(), ALL),
        (lambda features: list(reversed(features)), ALL),
        (lambda features: features.copy(), ALL),
        (copy.copy, ALL),
        (copy.deepcopy, ALL),
        (pickle.dumps, ALL),
        (lambda features: features | {}, ALL),
        (lambda features: {} | features, ALL),
        (lambda features: {}.update(features), ALL),
        (lambda features: features == {}, ALL),
        (lambda features: json.dumps(features, default=str), ALL),
        (lambda features: features.popitem(), ALL),
    ],
)
def test_what_is_asked_for_by_name_is_read_and_all_by_who_walks_through_it(
    read: Callable[[Any], Any], expected: set[str] | None
) -> None:
    assert observed(GIVEN, read)[1] == expected


def test_what_is_beside_is_read_and_removed_alike() -> None:
    for remove in (removed, emptied, lambda features: features.pop("x")):
        watched = WatchedFeatures({"row": 1}, {"x": 2})
        remove(watched)
        assert "x" not in watched
        assert watched.read == (set() if remove is emptied else {"x"})


def test_a_copy_has_everything_and_watches_nothing() -> None:
    for made in (copy.deepcopy(WatchedFeatures(GIVEN)), dict(WatchedFeatures(GIVEN)), {**WatchedFeatures(GIVEN)}):
        assert type(made) is dict
        assert {name: array.tolist() for name, array in made.items()} == {"x": [1, 1], "row": [0, 1]}


def test_a_library_that_knows_plain_dicts_alone_reads_everything() -> None:
    def jitted(features: Any) -> list[str]:
        if type(features) is not dict:
            raise TypeError(f"{type(features)} is not a valid type")
        return sorted(features)

    assert observed(GIVEN, jitted) == (["row", "x"], None)


def test_an_error_of_psflow_is_not_asked_for_twice() -> None:
    calls = []

    def refuse(features: Any) -> None:
        calls.append(features)
        raise UsageError(("no",))

    with pytest.raises(UsageError, match="no"):
        observed(GIVEN, refuse)
    assert len(calls) == 1


def test_one_array_is_read_as_it_is() -> None:
    assert observed(GIVEN["x"], lambda features: features is GIVEN["x"]) == (True, None)


def helper(features: Any) -> Any:
    return features["grup"]


def reads_group(features: Any, mode: str) -> EstimatorSpec:
    return EstimatorSpec(mode, predictions=helper(features))


def deletes(features: Any, mode: str) -> EstimatorSpec:
    del features["grup"]
    return EstimatorSpec(mode, predictions=features["x"])


def defaults(features: Any, mode: str) -> EstimatorSpec:
    try:
        group = features["group"]
    except KeyError:
        group = features["x"]
    return EstimatorSpec(mode, predictions=group)


def other_key(features: Any, mode: str) -> EstimatorSpec:
    return EstimatorSpec(mode, predictions={"group": 1}["grup"])


@pytest.mark.parametrize("call", ["build", "apply"])
def test_a_missing_feature_is_named_with_the_line_that_reads_it(call: str) -> None:
    line = helper.__code__.co_firstlineno + 1
    place = rf"\S*test_watched_features\.py:{line}"
    words = rf"the input has no feature 'grup', which reads_group reads in infer mode at {place}; did you mean 'group'"
    with pytest.raises(InputError, match=words):
        called(reads_group, call)


def test_a_missing_feature_that_is_removed_is_named_too() -> None:
    with pytest.raises(InputError, match=r"no feature 'grup', which deletes reads in infer mode at .*; did you mean"):
        called(deletes, "apply")


@pytest.mark.parametrize("call", ["build", "apply"])
def test_a_model_fn_may_do_without_a_feature_and_has_its_own_key_errors(call: str) -> None:
    called(defaults, call)
    with pytest.raises(KeyError, match="grup"):
        called(other_key, call)


def called(model_fn: Callable[..., Any], call: str) -> None:
    caller = ModelCaller(model_fn, {}, None)
    features = {"x": np.ones(2)} | ({} if model_fn is defaults else {"group": np.ones(2)})
    if call == "build":
        caller.build(features, None, ModeKeys.PREDICT, 0)
    else:
        caller.apply(features, None, ModeKeys.PREDICT, ModelValues({}), 0)
