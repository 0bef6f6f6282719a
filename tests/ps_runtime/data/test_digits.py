import numpy as np
import pytest

from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.digits import read_digits
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import MATRIX


def rows(data: Dataset) -> list[tuple[float, ...]]:
    return [tuple(row) for row in data.features[MATRIX].tolist()]


def test_the_whole_is_the_published_data_set() -> None:
    data = read_digits("all")
    pixels = data.features[MATRIX]
    assert (pixels.shape, pixels.dtype) == ((1797, 64), np.float32)
    assert (pixels.min(), pixels.max()) == (0, 1)
    # class counts as the data set's description in scikit-learn gives them
    assert np.bincount(data.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert data.labels.dtype == np.int64
    assert data.columns[:2] == ("pixel_0_0", "pixel_0_1")
    assert data.batch_size == 1797


def test_train_and_test_are_a_stratified_partition() -> None:
    train, test = read_digits("train"), read_digits("test")
    assert (train.num_records, test.num_records) == (1437, 360)
    assert sorted(rows(train) + rows(test)) == sorted(rows(read_digits("all")))
    share = np.bincount(test.labels) / np.bincount(read_digits("all").labels)
    assert np.all(np.abs(share - 0.2) < 0.005)


def test_the_split_is_always_the_same() -> None:
    assert read_digits("test").digest() == "f726585c2d873ddd1cba9f6d6f74ced8"


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(InputError, match=r"no split 'tset': expected one of train, test, all; did you mean 'test'\?"):
        read_digits("tset")
