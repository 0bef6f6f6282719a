"""Fashion-MNIST as arrays, for the programs beside this one; imports nothing of psflow."""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = "/usr/share/datasets/fashion-mnist"
"""Of Debian's package dataset-fashion-mnist."""


def read(part: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the images of ``train`` or ``t10k``, of shape ``(num_rows, 784)`` in [0, 1], and their classes."""
    with gzip.open(f"{FOLDER}/{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / 255
    with gzip.open(f"{FOLDER}/{part}-labels-idx1-ubyte.gz") as file:
        return images, np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
