"""The handwritten digits that scikit-learn ships: 1,797 images of 8 x 8 pixels."""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.scale import UNIT, ScaleRange, scaling_to
from psflow.ps_runtime.errors import InputError, did_you_mean
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.specs.schema import MATRIX

SPLITS = ("train", "test", "all")
NUM_TEST = (36, 36, 35, 37, 36, 37, 36, 36, 35, 36)
"""Rows of each digit in the test split: a fifth of all."""
SPLIT_SEED = 20180101
MAX_PIXEL = 16
WIDTH = 8


@dataclass(frozen=True, kw_only=True)
class Digits(Format):
    """The handwritten digits that scikit-learn ships."""

    suffixes: ClassVar[tuple[str, ...]] = ()

    split: Annotated[str, Key("Part of the data set: train, test or all.")] = "train"
    scale: ScaleRange = UNIT

    def __post_init__(self) -> None:
        scaling_to(self.scale, MAX_PIXEL)

    def read(self) -> Dataset:
        """Return the split; see `read_digits`."""
        return read_digits(self.split, self.scale)

    @classmethod
    def for_prediction(cls, location: str, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        """Return the split named by `location`, as it is stored; see `Format.for_prediction`."""
        return cls(split=location, scale=(0, MAX_PIXEL))


def read_digits(split: str = "train", scale: Sequence[float] = UNIT) -> Dataset:
    """Return a split of the digits.

    Raises InputError if there is no such split, or `scale` is not a range.

    References
    ----------
    E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits. UCI Machine Learning Repository, 1998.
    """
    if split not in SPLITS:
        known = ", ".join(SPLITS)
        raise InputError((f"the digits have no split {split!r}: expected one of {known}{did_you_mean(split, SPLITS)}",))
    scaling = scaling_to(scale, MAX_PIXEL)
    pixels, labels = _read_rows()
    is_test = _is_test(labels)
    rows = np.flatnonzero({"train": ~is_test, "test": is_test, "all": np.ones_like(is_test)}[split])
    columns = tuple(f"pixel_{y}_{x}" for y in range(WIDTH) for x in range(WIDTH))
    features = scaling.apply(pixels[rows])
    return Dataset({MATRIX: features}, labels[rows], batch_size=len(rows), columns=columns, scaling=scaling)


def _read_rows() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read the file without importing scikit-learn, which takes a second and 130 MB of every replica."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise InputError(("the digits come with scikit-learn, which is not installed",))
    with gzip.open(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    return table[:, :-1], table[:, -1].astype(np.int64)


def _is_test(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the rows that ``train_test_split(test_size=0.2, stratify=labels)`` of scikit-learn chooses."""
    chosen = np.zeros(len(labels), dtype=np.bool_)
    generator = np.random.RandomState(SPLIT_SEED)  # its numbers are the same in all numpy versions
    for _ in range(2):
        generator.permutation(2)  # scikit-learn breaks two ties here
    for digit, num_test in enumerate(NUM_TEST):
        rows = generator.permutation(np.flatnonzero(labels == digit))
        chosen[rows[len(rows) - num_test :]] = True
    return chosen
