"""Laws that every optimizer obeys."""

import json
import math
import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from psflow.ps_runtime.optimizers import OPTIMIZERS, Adam, Ftrl, RMSProp, UpdateOperands
from tests.extending import load
from tests.ps_runtime.optimizers.conftest import RULES

LION = load("my_optimizer").Lion(learning_rate=0.01, beta1=0.8)
"""An optimizer of a user: it keeps the laws of ours."""
DTYPES = [np.float32, np.float64]
finite = st.floats(-1e6, 1e6, width=32)


@pytest.fixture(params=[*RULES, LION], ids=repr)
def rule(request):
    return request.param


@pytest.fixture(params=DTYPES, ids=lambda dtype: dtype.__name__)
def dtype(request):
    return request.param


def gradients_of(size, dtype, count=5, seed=1):
    return np.random.default_rng(seed).normal(size=(count, size)).astype(dtype)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), size=st.integers(1, 40))
def test_updating_a_concatenation_is_updating_its_parts(rule, arena_of, dtype, data, size):
    start, first, second = (data.draw(arrays(dtype, size, elements=finite)) for _ in range(3))
    cut = data.draw(st.integers(0, size))
    whole, left, right = arena_of(rule, start), arena_of(rule, start[:cut]), arena_of(rule, start[cut:])
    for gradient in (first, second):
        whole.update(gradient)
        left.update(gradient[:cut])
        right.update(gradient[cut:])
    assert np.array_equal(whole.parameters, np.concatenate([left.parameters, right.parameters]))
    for name in rule.slot_names:
        assert np.array_equal(whole.slots[name], np.concatenate([left.slots[name], right.slots[name]]))


def test_a_zero_gradient_leaves_fresh_parameters_and_slots_alone(rule, arena_of, start, dtype):
    if getattr(rule, "weight_decay", 0.0):
        rule = replace(rule, weight_decay=0.0)
    arena = arena_of(rule, start(9, dtype))
    fresh = {name: slot.copy() for name, slot in arena.slots.items()}
    if isinstance(rule, RMSProp):
        fresh["mean_square"] *= rule.decay**3  # a mean that does not begin at zero
    for _ in range(3):
        arena.update(np.zeros(9, dtype))
    assert np.array_equal(arena.parameters, start(9, dtype))
    for name in rule.slot_names:
        np.testing.assert_allclose(arena.slots[name], fresh[name], rtol=1e-6)


def test_half_floats_stay_finite_where_squares_of_gradients_are_rounded_to_zero(rule, arena_of):
    arena = arena_of(rule, np.ones(3, np.float16))
    with np.errstate(divide="raise", invalid="raise"):
        for _ in range(5):
            arena.update(np.array([0.0, 1e-4, 1e-2], np.float16))
    assert np.isfinite(arena.parameters).all()


def test_a_zero_learning_rate_leaves_parameters_alone(rule, arena_of, start, dtype):
    arena = arena_of(rule, start(9, dtype))
    gradients = np.ones(9, dtype)
    rule.update(
        UpdateOperands(arena.parameters, gradients, arena.slots, arena.scratch, learning_rate=0.0, num_updates=1)
    )
    assert np.array_equal(arena.parameters, start(9, dtype))


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_a_zero_learning_rate_stops_only_the_slots_that_hold_steps(rule, arena_of, dtype, rate):
    arena = arena_of(rule, np.ones(9, dtype))
    gradients = np.full(9, 2.0, dtype)
    rule.update(
        UpdateOperands(arena.parameters, gradients, arena.slots, arena.scratch, learning_rate=rate, num_updates=1)
    )
    for name, slot in arena.slots.items():
        holds_steps = isinstance(rule, Ftrl) or (
            isinstance(rule, RMSProp) and name == "momentum" and rule.rate_in_momentum
        )
        assert ((slot != rule.initial_slot(name)) == (rate > 0.0 or not holds_steps)).all(), name


def test_a_small_step_goes_against_the_gradient(rule, arena_of, dtype):
    arena = arena_of(rule, np.zeros(4, dtype))
    gradient = np.array([1.0, -1.0, 1e-3, -1e-3], dtype)
    arena.update(gradient)
    assert np.array_equal(np.sign(arena.parameters), -np.sign(gradient))


def test_is_deterministic(rule, arena_of, dtype):
    one, other = (arena_of(rule, np.ones(33, dtype)) for _ in range(2))
    for gradient in gradients_of(33, dtype):
        one.update(gradient)
        other.update(gradient)
    assert one.parameters.tobytes() == other.parameters.tobytes()
    assert all(one.slots[name].tobytes() == other.slots[name].tobytes() for name in rule.slot_names)


def test_works_in_place_on_views_and_keeps_the_dtype(rule, dtype):
    memory = np.ones(8 + 16 * (3 + len(rule.slot_names)), dtype)
    views = [memory[8 + 16 * i : 8 + 16 * (i + 1)] for i in range(3 + len(rule.slot_names))]
    parameters, gradients, scratch, *slots = views
    rule.update(
        UpdateOperands(
            parameters,
            gradients,
            dict(zip(rule.slot_names, slots, strict=True)),
            scratch,
            learning_rate=0.1,
            num_updates=1,
        )
    )
    assert (memory[:8] == 1.0).all()
    assert (parameters != 1.0).all()


def test_allocates_nothing_of_the_arenas_size(rule, arena_of, dtype):
    size = 200_000
    arena, gradients = arena_of(rule, np.ones(size, dtype)), np.ones(size, dtype)

    def update(num_updates):
        rule.update(
            UpdateOperands(
                arena.parameters, gradients, arena.slots, arena.scratch, learning_rate=0.1, num_updates=num_updates
            )
        )

    update(1)
    tracemalloc.start()
    try:
        update(2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4096


def test_slots_have_initial_values_and_no_others(rule):
    assert all(math.isfinite(rule.initial_slot(name)) for name in rule.slot_names)
    with pytest.raises(KeyError):
        rule.initial_slot("elsewhere")


def test_config_survives_json_and_pickle(rule):
    config = rule.config()
    assert "learning_rate" not in config
    assert json.loads(json.dumps(config)) == config
    again = replace(rule, learning_rate=math.nan)
    assert again.config() == config
    assert pickle.loads(pickle.dumps(rule)) == rule


def test_a_rule_without_its_learning_rate_updates_alike(rule, arena_of, dtype):
    again = replace(rule, learning_rate=math.nan)
    arena, other = arena_of(rule, np.ones(5, dtype)), arena_of(rule, np.ones(5, dtype))
    for count, gradient in enumerate(gradients_of(5, dtype), start=1):
        arena.update(gradient)
        again.update(
            UpdateOperands(
                other.parameters,
                gradient.copy(),
                other.slots,
                other.scratch,
                learning_rate=rule.learning_rate_at(count),
                num_updates=count,
            )
        )
    assert arena.parameters.tobytes() == other.parameters.tobytes()


def test_the_laws_cover_the_whole_registry(rules):
    assert {type(r) for r in rules} == set(OPTIMIZERS.values())


def test_adam_bounds_its_first_steps_whatever_the_scale(arena_of, dtype):
    arena = arena_of(Adam(learning_rate=0.1), np.zeros(3, dtype))
    arena.update(np.array([1e-15, 1.0, 1e15], dtype))
    assert np.isfinite(arena.parameters).all()
    assert np.max(np.abs(arena.parameters)) <= 0.1001


def test_rms_prop_keeps_only_the_slots_that_it_uses():
    assert RMSProp(learning_rate=1.0).slot_names == ("mean_square",)
    assert RMSProp(learning_rate=1.0, momentum=0.5).slot_names == ("mean_square", "momentum")
    assert RMSProp(learning_rate=1.0, momentum=0.5, centered=True).slot_names == ("mean_square", "mean", "momentum")


def test_a_variance_that_rounding_makes_negative_is_none(arena_of):
    arena = arena_of(RMSProp(learning_rate=0.01, centered=True), np.zeros(64, np.float32))
    for _ in range(1000):
        arena.update(np.linspace(0.5, 2.0, 64, dtype=np.float32))
    assert (arena.slots["mean"] ** 2 > arena.slots["mean_square"]).any(), "the case did not occur"
    assert np.isfinite(arena.parameters).all()


def test_ftrl_makes_weights_of_little_use_exactly_zero(arena_of, dtype):
    arena = arena_of(Ftrl(learning_rate=0.1, l1_regularization_strength=2.0), np.zeros(2, dtype))
    for gradient in gradients_of(2, dtype, count=20) * np.array([0.1, 1.0], dtype) - np.array([0.0, 0.5], dtype):
        arena.update(gradient)
    assert arena.parameters[0] == 0.0
    assert arena.parameters[1] > 0.0
