"""Variables, the global step and summaries, as a model_fn asks for them."""

import numpy as np
import pytest

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.initializers import zeros
from psflow.ps_runtime.model import summary
from psflow.ps_runtime.model.calls.scope import BuildScope, CallScope, Declared, get_or_create_global_step, get_variable


@pytest.fixture
def first_call():
    scope = BuildScope(global_step=0, seed=1)
    with scope:
        yield scope


@pytest.fixture
def later_call():
    declared = {"weight": Declared((2,), "float32", True)}
    scope = CallScope(7, {"weight": np.float32([1, 2])}, declared)
    with scope:
        yield scope


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: get_variable("w"), "get_variable"),
        (get_or_create_global_step, "get_or_create_global_step"),
        (lambda: summary.scalar("accuracy", 1.0), "summary.scalar"),
    ],
)
def test_works_only_inside_a_model_fn(call, name):
    with pytest.raises(ModelFnError, match=f"{name} works only inside a model_fn that psflow calls"):
        call()


def test_a_scope_is_left_also_after_an_error():
    with pytest.raises(ZeroDivisionError), BuildScope(0, 1):
        raise ZeroDivisionError
    with pytest.raises(ModelFnError, match="only inside a model_fn"):
        get_variable("w")


def test_the_first_call_creates_each_variable_once(first_call):
    w = get_variable("w", (2, 3), np.float64)
    assert get_variable("w", (2, 3), "float64") is w
    assert first_call.declared == {"w": Declared((2, 3), "float64", True)}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"shape": (3,)}, r"as float32\[3\], but it is float32\[2\]"),
        ({"shape": (2,), "dtype": np.float64}, r"as float64\[2\], but it is float32\[2\]"),
        ({"shape": (2,), "trainable": False}, r"as float32\[2\], not trainable, but it is float32\[2\]"),
    ],
)
def test_refuses_one_name_for_two_variables(first_call, other, said):
    get_variable("w", (2,))
    with pytest.raises(ModelFnError, match=said):
        get_variable("w", **other)


def test_refuses_an_initializer_of_another_shape_or_dtype(first_call):
    with pytest.raises(ModelFnError, match=r"initializer of variable 'w' returned float32\[5\], expected float32\[2\]"):
        get_variable("w", (2,), initializer=lambda shape, dtype, rng: np.zeros(5, dtype))
    with pytest.raises(ModelFnError, match=r"returned float64\[2\], expected float32\[2\]"):
        get_variable("w", (2,), initializer=lambda shape, dtype, rng: np.zeros(shape))
    assert get_variable("w", (2,), initializer=zeros).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": ""}, "a variable needs a name, got ''"),
        ({"shape": 3.0}, r"the shape of variable 'w' is 3.0, expected a tuple of integers >= 0"),
        ({"shape": (2, -1)}, r"is \(2, -1\), expected a tuple of integers >= 0"),
        ({"shape": (2, [3])}, r"is \(2, \[3\]\), expected a tuple of integers >= 0"),
        ({"shape": np.array([2, 3])}, r"is array\(\[2, 3\]\), expected a tuple of integers >= 0"),
        ({"dtype": np.int32}, "the dtype of variable 'w' is int32, expected a float dtype, or trainable=False"),
        ({"dtype": np.complex64}, "is complex64, expected a float dtype"),
        ({"dtype": np.longdouble}, "the dtype of variable 'w' is float128, which no checkpoint can hold"),
        ({"dtype": object, "trainable": False}, "is object, expected a float, integer or bool dtype"),
    ],
)
def test_refuses_what_no_variable_can_be(first_call, asked, said):
    with pytest.raises(ModelFnError, match=said):
        get_variable(**{"name": "w"} | asked)


def test_a_variable_that_is_not_trained_may_hold_integers(first_call):
    assert get_variable("count", (2,), np.int64, zeros, trainable=False).dtype == np.int64


def test_a_variable_cannot_be_written_to(first_call):
    w = get_variable("w", (2,))
    with pytest.raises(ValueError, match="read-only"):
        w += 1


def test_a_later_call_gives_what_was_pulled(later_call):
    assert get_variable("weight", (2,)) is later_call.values["weight"]
    assert get_or_create_global_step() == 7


def test_a_later_call_refuses_a_new_variable_and_another_shape(later_call):
    with pytest.raises(ModelFnError, match=r"the new variable 'weigth'; the first call .*did you mean 'weight'"):
        get_variable("weigth", (2,))
    with pytest.raises(ModelFnError, match=r"as float32\[3\], but it is float32\[2\]"):
        get_variable("weight", (3,))
    with pytest.raises(ModelFnError, match=r"as float16\[2\], but it is float32\[2\]"):
        get_variable("weight", (2,), np.float16)


def test_a_summary_is_a_single_number(later_call):
    summary.scalar("accuracy", np.float32(0.5))
    assert later_call.summaries == {"accuracy": 0.5}
    with pytest.raises(ModelFnError, match=r"summary.scalar\('losses'\) takes a single number, got shape \[3\]"):
        summary.scalar("losses", np.ones(3))
