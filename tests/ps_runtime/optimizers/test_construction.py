"""Refusals of optimizers, and their messages."""

import json
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.optimizers import (
    OPTIMIZERS,
    Adagrad,
    Adam,
    AdamW,
    Ftrl,
    GradientDescent,
    Momentum,
    NAdam,
    RMSProp,
    optimizer_named,
)


def test_equal_values_of_another_type_are_checked_for_themselves():
    assert Momentum(learning_rate=1.0, momentum=0.0, use_nesterov=False)
    with pytest.raises(UsageError, match=r"Momentum: use_nesterov is 0\.0, expected True or False"):
        Momentum(learning_rate=1.0, momentum=0.0, use_nesterov=0.0)
    with pytest.raises(UsageError, match=r"Momentum: momentum is False, expected a number"):
        Momentum(learning_rate=1.0, momentum=False, use_nesterov=False)


def test_a_valid_optimizer_of_one_class_says_nothing_of_another():
    @dataclass(frozen=True)
    class Reluctant(GradientDescent):
        def _range_faults(self):
            yield "never"

    assert GradientDescent(learning_rate=0.5)
    with pytest.raises(UsageError, match="Reluctant: never"):
        Reluctant(learning_rate=0.5)


def test_defaults_are_the_references():
    decay = {"weight_decay": 0.0}
    assert Momentum(learning_rate=1.0).config() == {"name": "Momentum", "momentum": 0.9, "use_nesterov": False} | decay
    assert Adagrad().config() == {"name": "Adagrad", "initial_accumulator_value": 0.1, "epsilon": 0.0} | decay
    adam = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "epsilon_hat": True, "amsgrad": False}
    assert Adam().config() == {"name": "Adam"} | adam | decay
    adam["epsilon_hat"] = False
    assert AdamW().config() == {"name": "AdamW"} | adam | {"weight_decay": 0.01}
    assert NAdam().config() == {"name": "NAdam"} | adam | {"momentum_decay": 0.004} | decay
    assert RMSProp(learning_rate=1.0).config() == {
        "name": "RMSProp",
        "decay": 0.9,
        "momentum": 0.0,
        "epsilon": 1e-10,
        "centered": False,
        "initial_mean_square": 1.0,
        "epsilon_in_root": True,
        "rate_in_momentum": True,
        "weight_decay": 0.0,
    }
    assert Ftrl(learning_rate=1.0).config() == {
        "name": "Ftrl",
        "learning_rate_power": -0.5,
        "initial_accumulator_value": 0.1,
        "l1_regularization_strength": 0.0,
        "l2_regularization_strength": 0.0,
        "l2_shrinkage_regularization_strength": 0.0,
        "beta": 0.0,
    }
    assert (Adagrad().learning_rate, Adam().learning_rate) == (0.001, 0.001)
    with pytest.raises(TypeError, match="learning_rate"):
        GradientDescent()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_name_stands_for_the_defaults_of_a_rule_that_has_a_learning_rate(name):
    if name in ("Adagrad", "Adam", "AdamW", "NAdam"):
        assert optimizer_named(name) == OPTIMIZERS[name](0.001)
    else:
        with pytest.raises(UsageError, match=rf"'{name}' has no default learning rate: give {name}\(learning_rate\)"):
            optimizer_named(name)


@pytest.mark.parametrize(("name", "near"), [("adam", "Adam"), ("RMSprop", "RMSProp"), ("SGD", "GradientDescent")])
def test_a_name_of_tensorflow_or_torch_leads_to_that_of_psflow(name, near):
    with pytest.raises(UsageError, match=f"unknown optimizer '{name}', expected one of .*; did you mean '{near}'"):
        optimizer_named(name)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: GradientDescent(learning_rate=-0.1),
            r"GradientDescent: learning_rate is -0.1, expected a finite numb",
        ),
        (lambda: GradientDescent(learning_rate=math.inf), r"learning_rate is inf, expected a finite number >= 0"),
        (lambda: GradientDescent(learning_rate="0.1"), r"learning_rate is '0.1', expected a number or a schedule"),
        (lambda: GradientDescent(learning_rate=True), r"learning_rate is True, expected a number or a schedule"),
        (
            lambda: Momentum(learning_rate=1.0, momentum=1.0),
            r"Momentum: momentum is 1.0, expected a number in \[0, 1\)",
        ),
        (lambda: Momentum(learning_rate=1.0, momentum=math.nan), r"momentum is nan, expected a number in \[0, 1\)"),
        (lambda: Momentum(learning_rate=1.0, use_nesterov=1), r"use_nesterov is 1, expected True or False"),
        (lambda: Adagrad(initial_accumulator_value=0.0), r"initial_accumulator_value is 0.0, expected a finite number"),
        (lambda: Adam(beta1=-0.1), r"beta1 is -0.1, expected a number in \[0, 1\)"),
        (lambda: Adam(beta2=1), r"beta2 is 1, expected a number in \[0, 1\)"),
        (lambda: Adam(epsilon=1e-50), r"epsilon is 1e-50, expected a finite number >= 1.2e-38"),
        (lambda: Adam(epsilon=None), r"Adam: epsilon is None, expected a number"),
        (lambda: RMSProp(learning_rate=1.0, decay=1.0), r"RMSProp: decay is 1.0, expected a number in \[0, 1\)"),
        (lambda: RMSProp(learning_rate=1.0, momentum=-0.1), r"momentum is -0.1, expected a number in \[0, 1\)"),
        (lambda: RMSProp(learning_rate=1.0, epsilon=0.0), r"epsilon is 0.0, expected a finite number >= 1.2e-38"),
        (lambda: RMSProp(learning_rate=1.0, centered=1), r"centered is 1, expected True or False"),
        (
            lambda: Ftrl(learning_rate=1.0, learning_rate_power=0.5),
            r"Ftrl: learning_rate_power is 0.5, expected a finite number <= 0",
        ),
        (
            lambda: Ftrl(learning_rate=1.0, initial_accumulator_value=-1.0),
            r"initial_accumulator_value is -1.0, expected a finite number >= 0",
        ),
        (lambda: Ftrl(learning_rate=1.0, l1_regularization_strength=math.inf), r"l1_regularization_strength is inf"),
        (lambda: Ftrl(learning_rate=1.0, l2_regularization_strength=-1.0), r"l2_regularization_strength is -1.0"),
    ],
)
def test_refuses_hyper_parameters_out_of_range(make, words):
    with pytest.raises(UsageError, match=words):
        make()


def test_says_all_faults_at_once():
    with pytest.raises(UsageError) as caught:
        Adam(learning_rate=-1.0, beta1=2.0, beta2=3.0, epsilon=-1.0)
    assert len(caught.value.faults) == 4


def test_equal_numbers_make_equal_configurations():
    texts = {json.dumps(Adam(beta1=zero).config()) for zero in (0, 0.0, np.float32(0.0), np.float64(0.0))}
    assert len(texts) == 1


def test_a_schedule_is_evaluated_at_the_global_step():
    rule = GradientDescent(learning_rate=lambda step: np.float32(1.0) / (1 + step))
    assert rule.learning_rate_at(3) == 0.25
    assert type(rule.learning_rate_at(3)) is float


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf])
def test_a_schedule_that_leaves_the_range_is_named_with_its_step(rate):
    rule = GradientDescent(learning_rate=lambda step: rate)
    with pytest.raises(UsageError, match=rf"learning_rate is {rate} at global_step 7, expected a finite number >= 0"):
        rule.learning_rate_at(7)


def test_a_rule_without_a_learning_rate_has_none_at_any_step():
    rule = GradientDescent(learning_rate=math.nan)
    with pytest.raises(UsageError, match="learning_rate is nan at global_step 0"):
        rule.learning_rate_at(0)


def test_an_optimizer_of_a_user_is_named_with_its_module():
    assert Halving(learning_rate=1.0).config() == {
        "name": f"{__name__}:Halving",
        "weight_decay": 0.0,
        "share": 0.5,
    }


@dataclass(frozen=True, kw_only=True)
class Halving(GradientDescent):
    share: float = 0.5


def test_a_class_that_is_no_dataclass_would_hide_its_hyper_parameters():
    class Forgotten(GradientDescent):
        share: float = 0.5

    with pytest.raises(UsageError, match=r"Forgotten is not a dataclass: decorate it with @dataclass\(frozen=True"):
        Forgotten(learning_rate=1.0)


@pytest.mark.parametrize(
    ("value", "words"),
    [({}, "initial_slot has no value for the slot 'm', which"), ({"m": math.nan}, r"initial_slot\('m'\) is nan")],
)
def test_a_slot_without_an_initial_value_is_named_before_anything_trains(value, words):
    @dataclass(frozen=True, kw_only=True)
    class Forgotten(GradientDescent):
        slot_names: ClassVar = ("m",)

        def initial_slot(self, name):
            return value[name]

    with pytest.raises(UsageError, match=words):
        Forgotten(learning_rate=1.0)
