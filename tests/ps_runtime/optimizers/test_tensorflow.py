"""Optimizers and schedules against numbers of TensorFlow 2.15, which `tests/parity/regenerate.py` computes."""

from __future__ import annotations

import numpy as np
import pytest

from psflow.ps_runtime import optimizers
from tests.parity.cases import NUMBERS, OPTIMIZERS, SCHEDULE_STEPS, SCHEDULES, STEPS, gradient


def test_every_optimizer_is_compared():
    of_torch = {"AdamW", "NAdam"}  # which are held to it in tests/ps_runtime/torch_modules/test_parity.py
    assert {name for name, _, _ in OPTIMIZERS} == set(optimizers.OPTIMIZERS) - of_torch
    assert NUMBERS["tensorflow"].startswith("2.15.")
    assert (len(NUMBERS["optimizers"]), len(NUMBERS["schedules"])) == (len(OPTIMIZERS), len(SCHEDULES))


@pytest.mark.parametrize("case", range(len(OPTIMIZERS)), ids=[f"{name} {given}" for name, given, _ in OPTIMIZERS])
def test_agrees_with_tensorflow_over_200_updates(arena_of, case):
    name, arguments, start = OPTIMIZERS[case]
    arena = arena_of(optimizers.OPTIMIZERS[name](**arguments), np.array(start))
    rtol = 1e-6 if name == "Adam" else 1e-10  # TensorFlow has the powers of Adam's betas in float32
    for t in range(1, max(STEPS) + 1):
        arena.update(gradient(t))
        if t in STEPS:
            expected = NUMBERS["optimizers"][case][str(t)]
            np.testing.assert_allclose(arena.parameters, expected, rtol=rtol, atol=1e-13, err_msg=f"update {t}")


@pytest.mark.parametrize("case", range(len(SCHEDULES)), ids=[f"{name} {given}" for name, given in SCHEDULES])
def test_a_schedule_agrees_with_tensorflow(case):
    name, arguments = SCHEDULES[case]
    schedule = getattr(optimizers, name)(**arguments)
    rates = [schedule(step) for step in SCHEDULE_STEPS]
    np.testing.assert_allclose(rates, NUMBERS["schedules"][case], rtol=1e-6, atol=1e-7)
