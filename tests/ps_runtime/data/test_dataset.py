import pickle
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import MATRIX, ArraySpec, InputSchema, Scaling


def order(data: Dataset, epoch: int) -> list[int]:
    features, _ = data.read(epoch, 0, data.num_records)
    return features.tolist()


@given(st.data(), st.integers(1, 60), st.none() | st.integers(0, 2**40), st.integers(0, 5))
def test_each_record_once_per_epoch_over_any_partition(
    draw: st.DataObject, num_records: int, seed: int | None, epoch: int
) -> None:
    data = Dataset({"x": np.arange(num_records)}, np.arange(num_records) * 10, shuffle_seed=seed)
    cuts = draw.draw(st.sets(st.integers(0, num_records)).map(lambda s: sorted(s | {0, num_records})))
    parts = [data.read(epoch, start, stop) for start, stop in draw.draw(st.permutations(list(pairwise(cuts))))]
    seen = np.concatenate([features["x"] for features, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    assert sorted(seen.tolist()) == list(range(num_records))
    np.testing.assert_array_equal(labels, seen * 10)


def test_without_a_seed_the_order_is_that_of_the_arrays() -> None:
    data = Dataset([3, 1, 2])
    assert order(data, 0) == order(data, 7) == [3, 1, 2]


def test_a_shuffled_order_is_of_its_epoch_and_seed() -> None:
    data = Dataset(np.arange(50)).shuffle(50, seed=3)
    orders = [order(data, epoch) for epoch in range(6)]
    assert len({tuple(o) for o in orders}) == 6
    assert orders == [order(Dataset(np.arange(50), shuffle_seed=3), epoch) for epoch in range(6)]
    assert orders[0] != order(Dataset(np.arange(50)).shuffle(50, seed=4), 0)


def test_the_shuffled_order_is_pinned() -> None:
    # a checkpoint holds a position in this order: it must never change
    assert order(Dataset(np.arange(8), shuffle_seed=3), 1) == [2, 1, 4, 0, 5, 7, 6, 3]


def test_chain_methods_return_new_data_sets() -> None:
    data = Dataset([1, 2, 3])
    chained = data.shuffle(3, seed=9).batch(2).repeat()
    assert (data.batch_size, data.num_epochs, data.shuffle_seed) == (1, 1, None)
    assert (chained.batch_size, chained.num_epochs, chained.shuffle_seed) == (2, None, 9)
    assert chained.repeat(4).num_epochs is None
    assert data.repeat(2).repeat(4).num_epochs == 8
    assert chained.num_records == 3


def test_a_row_that_an_epoch_reads_several_times_is_one_example() -> None:
    data = Dataset(np.arange(999))
    joined = data.repeat().batch(1000)
    assert (joined.num_records, joined.num_examples) == (999_000, 999)
    assert data.repeat(3).batch(1000).num_examples == 999
    assert data.batch(500, drop_remainder=True).num_examples == 500


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("travelled", [False, True])
def test_what_is_read_is_read_only(seed: int | None, travelled: bool) -> None:
    data = Dataset({"x": np.zeros((4, 2))}, np.zeros(4), shuffle_seed=seed)
    if travelled:
        data = pickle.loads(pickle.dumps(data))
    features, labels = data.read(0, 0, 2)
    for array in (features["x"], labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_the_arrays_given_stay_writable() -> None:
    array = np.zeros(3)
    Dataset(array).read(0, 0, 3)
    array[0] = 1


def test_pickling_keeps_everything() -> None:
    data = Dataset({MATRIX: np.arange(6.0).reshape(3, 2)}, {"y": [1, 2, 3]}, 2, None, 5, ("a", "b"))
    copy = pickle.loads(pickle.dumps(data))
    assert copy.digest() == data.digest()
    assert (copy.batch_size, copy.num_epochs, copy.shuffle_seed, copy.columns) == (2, None, 5, ("a", "b"))
    np.testing.assert_array_equal(copy.read(1, 0, 3)[0][MATRIX], data.read(1, 0, 3)[0][MATRIX])


def test_a_data_set_that_was_read_travels_in_as_many_bytes() -> None:
    data = Dataset(np.zeros((1000, 10)))
    num_bytes = len(pickle.dumps(data))
    data.read(0, 0, 100)
    assert len(pickle.dumps(data)) < num_bytes + 1000


def test_all_faults_come_in_one_error() -> None:
    with pytest.raises(InputError) as caught:
        Dataset({"x": [1, 2]}, [1, 2, 3], batch_size=0, num_epochs=0, shuffle_seed=-1)
    text = str(caught.value)
    assert "expected the same number of rows in every array, but features['x'] has 2, labels has 3" in text
    assert "batch_size is 0: expected an int >= 1" in text
    assert "num_epochs is 0: expected an int >= 1, or None to repeat forever" in text
    assert "shuffle_seed is -1: expected an int >= 0, or None not to shuffle" in text


@pytest.mark.parametrize("batch_size", [True, 2.0, "2", None])
def test_a_batch_size_is_an_int(batch_size: object) -> None:
    with pytest.raises(InputError, match="batch_size of batch is"):
        Dataset([1]).batch(batch_size)


def test_numbers_may_be_of_numpy() -> None:
    assert Dataset([1, 2], batch_size=np.int64(2)).batch_size == 2


def test_nan_is_allowed() -> None:
    assert np.isnan(Dataset([np.nan]).read(0, 0, 1)[0][0])


@pytest.mark.parametrize(("epoch", "start", "stop"), [(-1, 0, 1), (0, -1, 1), (0, 1, 1), (0, 2, 1), (0, 0, 4)])
def test_a_range_outside_is_refused(epoch: int, start: int, stop: int) -> None:
    with pytest.raises(InputError, match=r"expected an epoch >= 0 and a range within the 3 records, got epoch"):
        Dataset([1, 2, 3]).read(epoch, start, stop)


def test_the_schema_is_without_the_batch_axis() -> None:
    data = Dataset({MATRIX: np.zeros((3, 2), np.float32)}, np.zeros(3, np.int64), columns=("a", "b"))
    features, labels = ArraySpec(MATRIX, "float32", (2,)), ArraySpec("", "int64", ())
    assert data.schema() == InputSchema((features,), (labels,), ("a", "b"))
    assert Dataset([1.0]).schema() == InputSchema((ArraySpec("", "float64", ()),))


@pytest.mark.parametrize(
    "features", [np.zeros((2, 3)), {MATRIX: np.zeros((2, 3))}, {MATRIX: np.zeros(2)}, {"x": [1, 2]}]
)
def test_named_columns_need_a_matrix_of_as_many(features: object) -> None:
    with pytest.raises(InputError, match="2 columns are named: expected a matrix 'features' of as many columns, got"):
        Dataset(features, columns=("a", "b"))


def test_a_scaling_needs_the_columns_that_it_applies_to() -> None:
    with pytest.raises(InputError, match="a scaling is given without columns"):
        Dataset({MATRIX: np.zeros((3, 2))}, scaling=Scaling(255, 0, 1))


STORED = np.random.default_rng(0).integers(0, 256, (7, 3), np.uint8)


@pytest.mark.parametrize("scaling", [Scaling(255, 0, 1), Scaling(255, -1, 1), Scaling(255, 0, 255)])
@pytest.mark.parametrize("seed", [None, 3])
def test_integers_are_scaled_as_they_are_read(scaling: Scaling, seed: int | None) -> None:
    features = (STORED.astype(np.float32) / np.float32(255 / (scaling.high - scaling.low))) + np.float32(scaling.low)
    before = Dataset({MATRIX: features}, range(7), shuffle_seed=seed, columns=("a", "b", "c"), scaling=scaling)
    stored = replace(before, features={MATRIX: STORED}, is_stored=True)
    assert (stored.schema(), stored.digest()) == (before.schema(), before.digest())
    for epoch, start, stop in ((0, 0, 7), (1, 2, 5)):
        found, expected = (data.read(epoch, start, stop) for data in (stored, before))
        assert (found[0][MATRIX].dtype, found[0][MATRIX].flags.writeable) == (np.float32, False)
        np.testing.assert_array_equal(found[0][MATRIX], expected[0][MATRIX])
        np.testing.assert_array_equal(found[1], expected[1])
    scaled = stored.scaled()
    assert not scaled.is_stored
    np.testing.assert_array_equal(scaled.features[MATRIX], before.features[MATRIX])
    assert scaled.scaled() is scaled


@pytest.mark.parametrize(
    ("matrix", "scaling", "words"),
    [
        ([[0, 1, 255], [0, 256, 1]], Scaling(255, 0, 1), "feature 'features' has 256 in row 1, expected whole numbers"),
        (
            np.int8([[0, -1, 3]]),
            Scaling(16, 0, 1),
            "feature 'features' has -1 in row 0, expected whole .* from 0 to 16",
        ),
        ([[0, 0.5, 1]], Scaling(255, 0, 1), "is_stored is True: expected integers in 'features', got float64"),
        ([[0, 1, 2]], None, "is_stored is True: expected a scaling, too, got None"),
    ],
)
def test_stored_values_are_integers_in_the_range_of_their_scaling(matrix: Any, scaling: Any, words: str) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        Dataset({MATRIX: matrix}, columns=("a", "b", "c"), scaling=scaling, is_stored=True)


def test_the_digest_is_of_the_records_alone() -> None:
    data = Dataset({"a": [1, 2], "b": [3, 4]}, [5, 6])
    assert data.digest() == "d7a026b135938dd4bcfe2978f0d79d99"
    assert Dataset({"b": [3, 4], "a": [1, 2]}, [5, 6]).shuffle(2, seed=1).batch(2).repeat().digest() == data.digest()


@pytest.mark.parametrize(
    "other",
    [
        Dataset({"a": [1, 2], "b": [3, 5]}, [5, 6]),
        Dataset({"a": [3, 4], "b": [1, 2]}, [5, 6]),
        Dataset({"a": [1, 2], "b": [3, 4]}, [5, 7]),
        Dataset({"a": [1, 2], "b": [3, 4]}),
        Dataset({"a": np.array([1, 2], np.uint64), "b": [3, 4]}, [5, 6]),
        Dataset({"a": [[1], [2]], "b": [3, 4]}, [5, 6]),
    ],
)
def test_other_records_have_another_digest(other: Dataset) -> None:
    assert other.digest() != Dataset({"a": [1, 2], "b": [3, 4]}, [5, 6]).digest()
