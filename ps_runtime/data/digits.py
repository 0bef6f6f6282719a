"""The handwritten digits that scikit-learn ships: 1,797 images of 8 x 8 pixels."""

from __future__ import annotations

import numpy as np

from ps_runtime.data.dataset import MATRIX, Dataset
from ps_runtime.errors import InputError, did_you_mean

__all__ = ["SPLITS", "read_digits"]

SPLITS = ("train", "test", "all")
TEST_SHARE = 0.2
SPLIT_SEED = 20180101
MAX_PIXEL = 16


def read_digits(split: str = "train") -> Dataset:
    """Return a part of the digits.

    Parameters
    ----------
    split : {"train", "test", "all"}
        The same 80 % and 20 % always, each digit in both by its share.

    Returns
    -------
    Dataset
        One batch. Features ``{"features": float32 (rows, 64)}`` in [0, 1], labels int64 ``(rows,)`` in [0, 10).

    Raises
    ------
    InputError
        If there is no such split.

    References
    ----------
    E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits. UCI Machine Learning Repository, 1998.
    """
    if split not in SPLITS:
        known = ", ".join(SPLITS)
        raise InputError((f"the digits have no split {split!r}: expected one of {known}{did_you_mean(split, SPLITS)}",))
    from sklearn.datasets import load_digits  # costs more than a second
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    labels = digits.target.astype(np.int64)
    rows = np.arange(len(labels))
    if split != "all":
        train, test = train_test_split(rows, test_size=TEST_SHARE, random_state=SPLIT_SEED, stratify=labels)
        rows = np.sort(train if split == "train" else test)
    pixels = (digits.data[rows] / MAX_PIXEL).astype(np.float32)
    return Dataset({MATRIX: pixels}, labels[rows], batch_size=len(rows), columns=tuple(digits.feature_names))
