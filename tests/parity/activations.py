"""Activation functions that are compared with TensorFlow 2.15. Run, it writes their values and slopes.

Run from the root of the checkout, in an environment with tensorflow-cpu==2.15.1 and numpy:
``PATH/TO/THAT/python tests/parity/activations.py``. Imported it needs neither TensorFlow nor psflow.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

NUMBERS_FILE = Path(__file__).with_name("activations.json")
NAMES = ("relu", "relu6", "leaky_relu", "elu", "selu", "softplus", "softsign", "sigmoid", "tanh")
POINTS = np.float32([-90, -7, -1.5, -0.01, 0.01, 0.5, 3, 6.5, 90])


def main() -> None:
    import tensorflow as tf

    numbers = {}
    for name in NAMES:
        points = tf.constant(POINTS)
        with tf.GradientTape() as tape:
            tape.watch(points)
            values = getattr(tf.nn, name)(points)
        numbers[name] = {"values": values.numpy().tolist(), "slopes": tape.gradient(values, points).numpy().tolist()}
    NUMBERS_FILE.write_text(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    main()
