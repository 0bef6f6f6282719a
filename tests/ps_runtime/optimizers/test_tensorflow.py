"""Optimizers against numbers of TensorFlow 2.15.1, tf.compat.v1.train, float64 on the CPU.

They were computed once, with `gradient` below fed to `apply_gradients` of a variable that starts at `start`.
TensorFlow holds hyper-parameters in float32, so all of them are numbers that float32 can hold.
"""

import numpy as np
import pytest

from psflow.ps_runtime.optimizers import Ftrl, RMSProp

ANYWHERE, ZERO = [-2.0, 0.0, 2.0], [0.0, 0.0, 0.0]

CASES = [
    (
        RMSProp(learning_rate=1 / 64, decay=7 / 8, epsilon=2**-30),
        ANYWHERE,
        {
            1: [-2.0133946460952155, 0.0001653654823354871, 1.9558729690828347],
            10: [-2.02309593680301, 6.712280000914449e-05, 1.8978589297501909],
            100: [-1.9911100989575954, 0.0012516880154251411, 1.9630216827055702],
        },
    ),
    (
        RMSProp(learning_rate=1 / 64, decay=3 / 4, momentum=1 / 2, epsilon=2**-10),
        ANYWHERE,
        {
            1: [-2.0136485455263484, 0.00017849730058728028, 1.968770400397955],
            10: [-2.048574067784644, 0.00015601374357978253, 1.8505648489808761],
            100: [-2.0041762316519915, 0.00039910053550370865, 1.9639919013989684],
        },
    ),
    (
        RMSProp(learning_rate=1 / 64, decay=7 / 8, momentum=7 / 8, epsilon=2**-30, centered=True),
        ANYWHERE,
        {
            1: [-2.013472217861295, 0.00016536562704101912, 1.952836447089793],
            10: [-2.1120334496038025, 0.00048568439568681085, 1.3231822236913717],
            100: [-2.1049203687267086, 0.0017442806319833341, 1.698331610554158],
        },
    ),
    (
        Ftrl(learning_rate=1 / 8, initial_accumulator_value=1 / 8),
        ZERO,
        {
            1: [-0.11524113311149943, 0.003498780665929379, -0.12499660116573981],
            10: [-0.1608566335132745, 0.0016188908538481324, -0.2908919940623523],
            100: [-0.11559836244479818, 0.0019286472984187638, -0.14319750285761806],
        },
    ),
    (
        Ftrl(
            learning_rate=1 / 8,
            learning_rate_power=-3 / 4,
            initial_accumulator_value=1.0,
            l1_regularization_strength=1 / 16,
            l2_regularization_strength=1 / 8,
        ),
        ANYWHERE,
        {
            1: [-0.7116874250505381, 0.0, 1.9757205156326538],
            10: [-0.7390966278647687, 0.0, 1.9601430336232404],
            100: [-0.716613956771468, 0.0, 1.9704718467167712],
        },
    ),
    (
        Ftrl(
            learning_rate=1 / 8,
            learning_rate_power=0.0,
            initial_accumulator_value=0.0,
            l1_regularization_strength=1 / 2,
        ),
        ZERO,
        {
            1: [-0.04268387310098706, 0.0, -5.930319232552538],
            10: [-0.1138985464022513, 0.0, -25.05567015468379],
            100: [0.0, 0.0, 0.26804378828765785],
        },
    ),
]


def gradient(t):
    """Of three parameters at the `t`-th update: moderate, small, and large with every third one missing."""
    return np.array([np.sin(t), 0.01 * np.cos(3.0 * t), 100.0 * np.sin(0.5 * t * t) * (t % 3 != 0)])


@pytest.mark.parametrize(("rule", "start", "expected"), CASES, ids=[repr(rule) for rule, *_ in CASES])
def test_agrees_with_tensorflow(arena_of, rule, start, expected):
    arena = arena_of(rule, np.array(start))
    for t in range(1, 101):
        arena.update(gradient(t))
        if t in expected:
            np.testing.assert_allclose(arena.parameters, expected[t], rtol=1e-11, atol=1e-14, err_msg=f"update {t}")
