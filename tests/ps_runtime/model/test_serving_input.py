"""Requests of clients, and the features that a function computes from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.errors import ArgumentTypeError, InputError, UsageError
from psflow.ps_runtime.model.export.receiver import (
    Placeholder,
    RawServingInput,
    ServingInputReceiver,
    TensorServingInputReceiver,
    build_raw_serving_input_receiver_fn,
    placeholder,
)
from psflow.ps_runtime.model.export.serving_input import ServingInput
from psflow.ps_runtime.specs.schema import ANY_LENGTH, ArraySpec

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "serve.md"


def fields() -> ServingInputReceiver:
    line = placeholder(str, [None], "line", example="0.5;red")
    scale = placeholder(np.float32, (None, 2))
    x = np.array([float(text.partition(";")[0]) for text in line], np.float32)
    return ServingInputReceiver({"x": x * scale[:, 1]}, {"text": line, "scale": scale})


@pytest.fixture
def received() -> ServingInput:
    return ServingInput.of(fields)


def test_the_first_call_tells_what_clients_send(received: ServingInput) -> None:
    assert received.received == (ArraySpec("text", "str", ()), ArraySpec("scale", "float32", (2,)))
    assert received.example["x"].tolist() == [0]


def test_features_of_a_request(received: ServingInput) -> None:
    given = {"scale": [[0, 2], [0, 10]], "text": ["1.5;", "2"], "other": 3}
    assert received.features(given, "the input")["x"].tolist() == [3, 20]
    assert received.features({"scale": [[0, 2]], "text": "1.5"}, "the input")["x"].tolist() == [3]


def test_a_request_without_rows_has_no_features(received: ServingInput) -> None:
    given = {"scale": np.zeros((0, 2)), "text": []}
    assert received.features(given, "the input")["x"].tolist() == []


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"text": ["1"]}, "the input has no array 'scale'; its arrays are 'text'"),
        ([1.0], "the input is one array: expected the arrays 'text', 'scale' by name"),
        ({"text": ["1", None], "scale": np.ones((2, 2))}, "the input: array 'text' has None in row 1, expected text"),
        ({"text": ["1", 2], "scale": np.ones((2, 2))}, "the input: array 'text' has 2 in row 1, expected text"),
        ({"text": [["1"]], "scale": np.ones((1, 2))}, "array 'text' has rows of shape [1], expected []"),
        ({"text": ["1"], "scale": [[1, 2, 3]]}, "array 'scale' has rows of shape [3], expected [2]"),
        ({"text": ["1"], "scale": [["1", "2"]]}, "array 'scale' has dtype <U1, expected float32"),
        ({"text": ["1", "2"], "scale": [[1, 2], [1]]}, "array 'scale' has rows of different shapes, expected [2]"),
        ({"text": ["1"], "scale": np.ones((2, 2))}, "different numbers of rows: {'text': 1, 'scale': 2}"),
        ({"text": ["a"], "scale": [[1, 2]]}, "the input cannot be read by fields: ValueError: could not convert"),
    ],
)
def test_a_request_that_is_wrong(received: ServingInput, given: Any, fault: str) -> None:
    with pytest.raises(InputError, match=re.escape(fault)):
        received.features(given, "the input")


def test_one_array_needs_no_name() -> None:
    def only() -> TensorServingInputReceiver:
        x = placeholder("float32", [None])
        return TensorServingInputReceiver(-x, x)

    received = ServingInput.of(only)
    assert [spec.name for spec in received.received] == ["input"]
    assert received.features([1, 2], "the input").tolist() == [-1, -2]


def test_each_row_makes_one() -> None:
    def some() -> ServingInputReceiver:
        x = placeholder("float32", [None])
        return ServingInputReceiver(x[x >= 0], x)

    received = ServingInput.of(some)
    said = r"some returned the feature 'feature' of shape \[1\] for 2 rows: expected one row for each"
    with pytest.raises(InputError, match=said):
        received.features([-1, 2], "the input")


def test_a_later_call_asks_for_the_same() -> None:
    asked = [[("float32", [None])], [("float32", [None, 1])], [("float32", [None]), ("float32", [None])]]

    def changing() -> ServingInputReceiver:
        arrays = [placeholder(*one) for one in asked.pop(0)]
        return ServingInputReceiver(arrays[0], arrays[0])

    received = ServingInput.of(changing)
    with pytest.raises(InputError, match="changing requests other placeholders than in its first call"):
        received.features([1.0], "the input")
    with pytest.raises(InputError, match="placeholder 1 was not requested in the first call"):
        received.features([1.0], "the input")


def test_a_placeholder_elsewhere_is_a_key_for_what_a_loop_feeds() -> None:
    key = placeholder("float32", [None, 2], "x")
    assert isinstance(key, Placeholder)
    assert key.taken([[1, 2]]).tolist() == [[1.0, 2.0]]
    assert key != placeholder("float32", [None, 2], "x")


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "fault"),
    [
        (
            (object, [None]),
            {},
            TypeError,
            "placeholder 'a': dtype should be str, or a dtype of numbers or booleans such as np.f",
        ),
        (
            ("complex64", [None]),
            {},
            TypeError,
            "placeholder 'a': dtype should be str, or a dtype of numbers or booleans such as np.f",
        ),
        (("string", [None]), {}, TypeError, "or a dtype of numbers or booleans such as np.float32, got str 'string'"),
        ((None, [None]), {}, TypeError, "or a dtype of numbers or booleans such as np.float32, got None"),
        ((3, [None]), {}, TypeError, "or a dtype of numbers or booleans such as np.float32, got int 3"),
        (("f4,", [None]), {}, TypeError, "or a dtype of numbers or booleans such as np.float32, got str 'f4,'"),
        ((("f4", -1), [None]), {}, TypeError, "or a dtype of numbers or booleans such as np.float32, got tuple"),
        (("f4", []), {}, TypeError, "placeholder 'a': shape should be None, for any number of rows, and the whole"),
        (("f4", [3]), {}, TypeError, "placeholder 'a': shape should be None, for any number of rows, and the whole"),
        (("f4", [None, 2.0]), {}, TypeError, "placeholder 'a': shape should be None, for any number of rows"),
        (("f4", None), {}, TypeError, "placeholder 'a': shape should be None, for any number of rows"),
        ((str, [None]), {}, ValueError, "placeholder 'a': text has no obvious example; give one, such as example="),
        ((str, [None]), {"example": 3}, ValueError, "placeholder 'a': the example is int64[], expected str[]"),
        (("f4", [None]), {"example": "3"}, ValueError, "placeholder 'a': the example is str32[], expected float32[]"),
        (("f4", [None, 2]), {"example": [1]}, ValueError, "the example is int64[1], expected float32[2]"),
        (("i4", [None]), {"example": 2.5}, ValueError, "has 2.5 (float64) in row 0, which int32 cannot hold"),
    ],
)
def test_what_no_placeholder_is(arguments: Any, options: Any, kind: type[Exception], fault: str) -> None:
    def asking() -> Any:
        return placeholder(*arguments, "a", **options)

    with pytest.raises(kind, match=re.escape(fault)):
        ServingInput.of(asking)


def padded() -> ServingInputReceiver:
    ids = placeholder("int64", [None, None], "ids")
    made = np.zeros((len(ids), 5), np.int64)
    made[:, : ids.shape[1]] = ids[:, :5]
    return ServingInputReceiver({"ids": made}, {"ids": ids})


def test_rows_of_any_length_where_the_function_says_so() -> None:
    received = ServingInput.of(padded)
    assert received.received == (ArraySpec("ids", "int64", (ANY_LENGTH,)),)
    for ids, expected in (([[1, 2]], [1, 2, 0, 0, 0]), ([[1, 2, 3, 4, 5, 6, 7]], [1, 2, 3, 4, 5])):
        assert received.features({"ids": ids}, "the input")["ids"].tolist() == [expected]
    for ids, fault in ((3, r"rows of shape \[\], expected"), ([[1], [1, 2]], "rows of different shapes")):
        with pytest.raises(InputError, match=rf"array 'ids' has {fault}"):
            received.features({"ids": ids}, "the input")
    with pytest.raises(UsageError, match=r"placeholder: shape \[None, None\] has .* only a serving_input_receiver_fn"):
        placeholder("int64", [None, None])


@pytest.mark.parametrize("example", [0.5, 3, np.float64(2)])
def test_an_example_is_what_the_function_is_tried_on(example: Any) -> None:
    def asking() -> Any:
        x = placeholder("float32", [None], example=example)
        return ServingInputReceiver(x, x)

    assert ServingInput.of(asking).example["feature"].tolist() == [float(example)]


def test_what_clients_cannot_send() -> None:
    def unsent() -> Any:
        x, y = placeholder("f4", [None], "x"), placeholder("f4", [None], "y")
        return ServingInputReceiver({"x": x + y}, {"x": x, "sum": x + y, "again": x})

    with pytest.raises(UsageError) as caught:
        ServingInput.of(unsent)
    assert str(caught.value).splitlines() == [
        "receiver_tensors['sum'] is not an array from placeholder; pass what it returned",
        "receiver_tensors has placeholder 'x' twice, as 'x' and 'again'",
        "placeholder 'y' is not among the receiver_tensors, so no client can send it; add it to them",
    ]


@pytest.mark.parametrize("returned", [None, {"x": 1}, (np.ones(1), np.ones(1))])
def test_another_answer_is_an_error_of_type(returned: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="should be a ServingInputReceiver, got"):
        ServingInput.of(lambda: returned)


def test_the_function_of_the_page_on_serving_reads_lines() -> None:
    [block] = re.findall(r"^```python\n((?:(?!```).)*placeholder.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    received = ServingInput.of(names["serving_input_receiver_fn"])
    assert received.features({"line": ["0.5;red", "2;blue"]}, "the input")["x"].tolist() == [0.5, 2]


def test_features_as_they_are() -> None:
    features = {"x": np.zeros((7, 3), np.float32), "id": np.zeros(7, np.int64)}
    function = build_raw_serving_input_receiver_fn(features)
    assert function == RawServingInput({"x": "float32", "id": "int64"}, {"x": [3], "id": []})
    given = {"x": np.ones((2, 3)), "id": [4, 5]}
    made = ServingInput.of(function).features(given, "the input")
    assert {name: (array.dtype.name, array.tolist()) for name, array in made.items()} == {
        "x": ("float32", [[1, 1, 1], [1, 1, 1]]),
        "id": ("int64", [4, 5]),
    }


@pytest.mark.parametrize(
    ("features", "options", "kind", "fault"),
    [
        (None, {}, TypeError, "features should be a mapping of str to array, got None"),
        (np.ones(3), {}, TypeError, "features should be a mapping of str to array, got ndarray"),
        ({}, {}, ValueError, "features is empty: expected at least one array"),
        ({"x": 3}, {}, TypeError, "features['x'] should be an array, got int 3"),
        ({3: np.ones(3)}, {}, TypeError, "a name of features should be a str, got int 3"),
        ({"x": np.array(["a"])}, {}, ValueError, "features['x'] is <U1[1]: expected numbers or booleans"),
        ({"x": np.array(1.0)}, {}, ValueError, "features['x'] is float64[]: expected numbers or booleans"),
        ({"x": np.ones(3)}, {"default_batch_size": 3}, ValueError, "default_batch_size: any number of rows is served"),
    ],
)
def test_features_that_none_can_send(features: Any, options: Any, kind: type[Exception], fault: str) -> None:
    with pytest.raises(kind, match=re.escape(fault)):
        build_raw_serving_input_receiver_fn(features, **options)
