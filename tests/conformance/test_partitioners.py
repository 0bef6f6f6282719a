"""Partitioners: the numbers of slices of TensorFlow 2.15, and what they mean for a variable here."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from psflow import (
    fixed_size_partitioner,
    get_variable,
    initializers,
    min_max_variable_partitioner,
    variable_axis_size_partitioner,
)
from psflow.ps_runtime.errors import ModelFnError, ModelFnTypeError
from psflow.ps_runtime.model.calls.scope import BuildScope, CallScope

PARTITIONERS = [
    fixed_size_partitioner(1),
    fixed_size_partitioner(4),
    fixed_size_partitioner(64),
    min_max_variable_partitioner(),
    min_max_variable_partitioner(16),
    min_max_variable_partitioner(6, 0, 100),
    variable_axis_size_partitioner(1),
    variable_axis_size_partitioner(1000),
    variable_axis_size_partitioner(1 << 20),
    variable_axis_size_partitioner(64, max_shards=3),
]
# printed by the functions of tf.compat.v1 of these names, TensorFlow 2.15.0
SLICES = {
    ((1,), "float32"): [1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    ((7,), "float64"): [1, 4, 7, 1, 1, 1, 7, 1, 1, 1],
    ((100, 4), "float32"): [1, 4, 64, 1, 1, 6, 100, 2, 1, 3],
    ((100, 4), "float64"): [1, 4, 64, 1, 1, 6, 100, 4, 1, 3],
    ((1024, 512), "float32"): [1, 4, 64, 1, 8, 6, 1024, 1024, 2, 3],
    ((1024, 512), "float64"): [1, 4, 64, 1, 16, 6, 1024, 1024, 4, 3],
    ((5, 3, 2), "float32"): [1, 4, 5, 1, 1, 2, 5, 1, 1, 3],
    ((5, 3, 2), "float64"): [1, 4, 5, 1, 1, 3, 5, 1, 1, 3],
    ((3, 200000), "float32"): [1, 3, 3, 1, 3, 3, 3, 3, 3, 3],
}


def built(shape: Any = (10, 2), partitioner: Any = None, **asked: Any) -> BuildScope:
    with BuildScope(0, 7) as scope:
        get_variable("v", shape, partitioner=partitioner, **asked)
    return scope


def slices_of(shape: Any, partitioner: Any) -> int | None:
    return built(shape, partitioner).declared["v"].num_slices


@pytest.mark.parametrize(("shape", "dtype"), SLICES)
def test_they_give_as_many_slices_as_in_tensorflow(shape, dtype):
    given = [partitioner(shape=shape, dtype=np.dtype(dtype)) for partitioner in PARTITIONERS]
    assert given == [[number, *(1 for _ in shape[1:])] for number in SLICES[shape, dtype]]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_scalar_and_a_variable_of_no_rows_are_not_sliced(partitioner):
    assert slices_of((), partitioner) is None
    assert slices_of((0, 3), partitioner) == 1


def test_a_function_of_the_user_is_a_partitioner():
    asked = {}

    def half(shape, dtype):
        asked.update(shape=shape, dtype=dtype)
        return (shape[0] // 2, 1)

    assert slices_of((10, 2), half) == 5
    assert asked == {"shape": (10, 2), "dtype": np.dtype("float32")}


def test_a_sliced_variable_is_whole_and_begins_with_the_same_values():
    whole, sliced = built(), built(partitioner=fixed_size_partitioner(4))
    assert whole.declared["v"].num_slices is None
    assert sliced.declared["v"].num_slices == 4
    np.testing.assert_array_equal(sliced.values["v"], whole.values["v"])


def test_a_value_can_be_sliced():
    scope = built(None, fixed_size_partitioner(2), initializer=np.ones(4, np.float32))
    assert scope.declared["v"].num_slices == 2


def test_a_second_request_in_a_call_asks_for_the_same_slices_or_leaves_them_out():
    with BuildScope(0, 7):
        get_variable("v", 4, partitioner=fixed_size_partitioner(2))
        get_variable("v", 4, partitioner=fixed_size_partitioner(2))
        get_variable("v", 4)
        with pytest.raises(ModelFnError, match=r"as float32\[4\], in 3 slices, but it is float32\[4\], in 2 slices"):
            get_variable("v", 4, partitioner=fixed_size_partitioner(3))


def test_later_calls_and_other_modes_may_leave_it_out():
    declared = built((4,), fixed_size_partitioner(2)).declared
    with CallScope(0, {"v": "its value"}, declared):
        assert get_variable("v", (4,)) == "its value"


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: fixed_size_partitioner(0), "fixed_size_partitioner: num_shards should be 1 or more, got 0"),
        (lambda: fixed_size_partitioner(2, 1), "fixed_size_partitioner: axis should be 0, got 1: variables are split"),
        (lambda: fixed_size_partitioner(2, axis=-1), "axis should be 0, got -1"),
        (lambda: min_max_variable_partitioner(0), "max_partitions should be 1 or more, got 0"),
        (lambda: min_max_variable_partitioner(2, 1), "min_max_variable_partitioner: axis should be 0, got 1"),
        (lambda: min_max_variable_partitioner(2, 0, 0), "min_slice_size should be 1 or more, got 0"),
        (lambda: variable_axis_size_partitioner(0), "max_shard_bytes should be 1 or more, got 0"),
        (lambda: variable_axis_size_partitioner(9, 1), "variable_axis_size_partitioner: axis should be 0, got 1"),
        (lambda: variable_axis_size_partitioner(9, max_shards=0), "max_shards should be 1 or more, got 0"),
    ],
)
def test_what_cannot_be_is_an_error_of_value(make, fault):
    with pytest.raises(ValueError, match=re.escape(fault)) as caught:
        make()
    assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize("number", [1.5, "2", None])
def test_what_is_no_number_is_an_error_of_type(number):
    for make in (fixed_size_partitioner, min_max_variable_partitioner, variable_axis_size_partitioner):
        with pytest.raises(TypeError, match=f"should be a whole number, got .*{number!r}"):
            make(number)


@pytest.mark.parametrize("answer", [np.array([2, 1]), [np.int64(2), np.int32(1)], (2, 1), np.array([2.0, 1.0])])
def test_an_answer_may_be_an_array(answer):
    assert built(partitioner=lambda shape, dtype: answer).declared["v"].num_slices == 2


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ([1, 2], "gave [1, 2]: expected 1 for each axis but the first, because variables are split by rows; slice"),
        ([2, 2], "gave [2, 2]: expected 1 for each axis but the first"),
        ([2], "gave [2]: expected a sequence with a number of slices, 1 or more, for each axis"),
        ([0, 1], "gave [0, 1]: expected a sequence with a number"),
        ([1.5, 1], "gave [1.5, 1]: expected a sequence with a number"),
        (2, "gave 2: expected a sequence"),
        (np.array(2), "gave array(2): expected a sequence"),
        (np.array([[2, 1]]), "gave array([[2, 1]]): expected a sequence"),
        (np.array([1.5, 1]), "gave array([1.5, 1. ]): expected a sequence"),
        (None, "gave None: expected a sequence"),
        ("21", "gave '21': expected a sequence"),
        ([11, 1], "gave [11, 1]: expected at most as many slices as the variable has rows, 10"),
    ],
)
def test_an_answer_that_cannot_be_is_refused(answer, fault):
    with pytest.raises(ModelFnError, match=re.escape(f"the partitioner of variable 'v' of shape [10, 2] {fault}")):
        built(partitioner=lambda shape, dtype: answer)


def test_a_partitioner_can_be_called():
    with pytest.raises(ModelFnTypeError, match="the partitioner of variable 'v' should be callable, got 3"):
        built(partitioner=3)


def test_initializers_see_the_whole_variable():
    seen = []

    def ones(shape, dtype, rng):
        seen.append(shape)
        return initializers.ones(shape, dtype, rng)

    built(partitioner=fixed_size_partitioner(4), initializer=ones)
    assert seen == [(10, 2)]
