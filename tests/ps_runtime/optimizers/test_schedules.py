"""Schedules against numbers worked out manually from the TensorFlow 1.15 documentation of the same decays."""

import pickle

import pytest

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.optimizers import (
    Adam,
    CosineDecay,
    ExponentialDecay,
    PiecewiseConstant,
    PolynomialDecay,
)

POLYNOMIAL = PolynomialDecay(1.0, decay_steps=10, end_learning_rate=0.1, power=2.0)
CYCLE = PolynomialDecay(1.0, decay_steps=10, end_learning_rate=0.0, cycle=True)
PIECES = PiecewiseConstant([10, 20], [1.0, 0.5, 0.1])


@pytest.mark.parametrize(
    ("schedule", "step", "rate"),
    [
        (ExponentialDecay(0.1, 100, 0.96), 0, 0.1),
        (ExponentialDecay(0.1, 100, 0.96), 50, 0.09797958971132713),
        (ExponentialDecay(0.1, 100, 0.96, staircase=True), 199, 0.096),
        (ExponentialDecay(0.1, 100, 0.96, staircase=True), 200, 0.09216),
        (POLYNOMIAL, 0, 1.0),
        (POLYNOMIAL, 5, 0.9 * 0.25 + 0.1),
        (POLYNOMIAL, 10, 0.1),
        (POLYNOMIAL, 1000, 0.1),
        (CYCLE, 0, 1.0),
        (CYCLE, 10, 0.0),
        (CYCLE, 11, 1 - 11 / 20),
        (CYCLE, 25, 1 - 25 / 30),
        (PIECES, 0, 1.0),
        (PIECES, 10, 1.0),
        (PIECES, 11, 0.5),
        (PIECES, 20, 0.5),
        (PIECES, 21, 0.1),
        (PiecewiseConstant((), (0.3,)), 5, 0.3),
        (CosineDecay(2.0, 100), 0, 2.0),
        (CosineDecay(2.0, 100), 50, 1.0),
        (CosineDecay(2.0, 100, alpha=0.1), 100, 0.2),
        (CosineDecay(2.0, 100, alpha=0.1), 10_000, 0.2),
    ],
)
def test_rates(schedule, step, rate):
    assert schedule(step) == pytest.approx(rate, rel=1e-12, abs=1e-15)
    assert pickle.loads(pickle.dumps(schedule)) == schedule


@pytest.mark.parametrize(
    "schedule", [ExponentialDecay(0.1, 7, 0.5), PolynomialDecay(0.1, 30), PIECES, CosineDecay(0.1, 30)], ids=repr
)
def test_every_schedule_serves_an_optimizer_and_never_rises(schedule):
    rates = [Adam(learning_rate=schedule).learning_rate_at(step) for step in range(60)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == schedule(0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ExponentialDecay(0.1, 0, 0.5), "ExponentialDecay: decay_steps is 0, expected a number of steps > 0"),
        (lambda: ExponentialDecay(0.1, 1, 0.0), "decay_rate is 0.0, expected a number > 0"),
        (lambda: PolynomialDecay(-0.1, 1), "PolynomialDecay: learning_rate is -0.1, expected a number >= 0"),
        (lambda: ExponentialDecay(None, 1, 0.5), "learning_rate is None, expected a number >= 0"),
        (lambda: ExponentialDecay(0.1, "x", 0.5), "decay_steps is 'x', expected a number of steps > 0"),
        (lambda: ExponentialDecay(0.1, 10**400, 0.5), "decay_steps is 10+, expected a number of steps > 0"),
        (lambda: ExponentialDecay(0.1, 1, 0.5, None), "ExponentialDecay: staircase is None, expected True or False"),
        (lambda: PolynomialDecay(0.1, 1, cycle="x"), "PolynomialDecay: cycle is 'x', expected True or False"),
        (lambda: CosineDecay(0.1, 1, alpha=None), r"alpha is None, expected a number in \[0, 1\]"),
        (lambda: PiecewiseConstant(None, (1,)), "boundaries is None, expected strictly increasing steps"),
        (lambda: PiecewiseConstant((1,), ("x", 1)), r"values is \('x', 1\), expected rates >= 0, one more than"),
        (lambda: Adam(learning_rate=10**400), "Adam: learning_rate is 10+, expected a number or a schedule"),
        (lambda: PolynomialDecay(0.1, 1, power=0.0), "power is 0.0, expected a number > 0"),
        (lambda: PiecewiseConstant((2, 1), (1, 1, 1)), r"boundaries is \(2, 1\), expected strictly increasing steps"),
        (
            lambda: PiecewiseConstant((1, 2), (1, 1)),
            r"values is \(1, 1\), expected rates >= 0, one more than there are",
        ),
        (lambda: CosineDecay(0.1, 1, alpha=1.5), r"alpha is 1.5, expected a number in \[0, 1\]"),
    ],
)
def test_refuses_what_cannot_be(make, words):
    with pytest.raises(UsageError, match=words):
        make()


def test_says_all_faults_at_once():
    with pytest.raises(UsageError) as caught:
        CosineDecay(-1.0, -1, -1.0)
    assert len(caught.value.faults) == 3
