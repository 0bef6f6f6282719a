"""Late and expiring rows in canned models: set for a data set or tabular files, trained, resumed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import (
    Dataset,
    Estimator,
    EstimatorSpec,
    Ftrl,
    GradientDescent,
    LinearRegressor,
    RunConfig,
    embedding_lookup,
    feature_column,
    get_variable,
)
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.columns.crossing import CrossOptions
from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import InputError, ModelDirError

MANY = 5000
WEIGHTS = "linear/linear_model/word/weights"
OFTEN, TWICE = 7, 4000


def estimator_in(folder: Path, save_steps: int = 10_000) -> LinearRegressor:
    config = RunConfig(tf_random_seed=3, save_checkpoints_steps=save_steps)
    return LinearRegressor(optimizer=Ftrl(learning_rate=0.5), model_dir=str(folder), config=config)


def batches(num_steps: int, twice_in: tuple[int, ...] = (0, 1), **declared: Any) -> Callable[[], Dataset]:
    """Return so many batches of two records: OFTEN is in each of them, TWICE in two, and others in one."""
    words = [[OFTEN, TWICE if step in twice_in else 100 + step] for step in range(num_steps)]
    features = {"word": np.array(words).reshape(-1)}
    labels = np.ones(2 * num_steps, np.float32)
    return lambda: Dataset(features, labels, num_ids={"word": MANY}, **declared).batch(2)


def weights(estimator: LinearRegressor, *ids: int) -> list[float]:
    found: list[float] = estimator.get_table_rows(WEIGHTS, np.array(ids))[:, 0].tolist()
    return found


def num_rows(folder: Path) -> int:
    """Return how many rows the latest checkpoint holds."""
    store = CheckpointStore(str(folder))
    step = store.latest()
    assert step is not None
    return sum(entry.shape[0] for entry in store.manifest(step).tables if entry.tensor == "ids")


def test_a_row_is_created_by_the_push_that_it_asks_for(tmp_path: Path) -> None:
    made = {}
    for admit_after in (1, 2, 3):
        estimator = estimator_in(tmp_path / str(admit_after))
        estimator.train(batches(4, admit_after={"word": admit_after}), max_steps=4)
        often, twice, once = weights(estimator, OFTEN, TWICE, 102)
        made[admit_after] = (often != 0, twice != 0, once != 0, num_rows(tmp_path / str(admit_after)))
    assert made == {1: (True, True, True, 4), 2: (True, True, False, 2), 3: (True, False, False, 1)}


def test_a_row_and_its_slots_are_forgotten_after_so_many_steps_without_a_push(tmp_path: Path) -> None:
    kept, forgetting = estimator_in(tmp_path / "kept", 5), estimator_in(tmp_path / "forgetting", 5)
    kept.train(batches(9), max_steps=9)
    forgetting.train(batches(9, expire_after_steps={"word": 4}), max_steps=9)
    assert weights(kept, TWICE) != [0.0]
    assert weights(forgetting, TWICE) == [0.0]
    assert weights(forgetting, OFTEN) != [0.0]
    # with its slots forgotten, the first push moves a row as far as one that is new
    forgetting.train(batches(1, expire_after_steps={"word": 4}), max_steps=10)
    assert weights(forgetting, TWICE)[0] != 0.0
    new = batches(1, twice_in=(), expire_after_steps={"word": 4})
    again = estimator_in(tmp_path / "again", 5)
    again.train(batches(9, expire_after_steps={"word": 4}), max_steps=9)
    again.train(new, max_steps=10)
    assert weights(forgetting, TWICE) == weights(again, 100)


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ({"admit_after": {"word": 3}}, "of 5000 ids, admit_after 3"),
        ({"expire_after_steps": {"word": 9}}, "of 5000 ids, expire_after_steps 9"),
    ],
)
def test_a_job_goes_on_with_the_setting_that_it_has_begun_with(
    tmp_path: Path, declared: dict[str, Any], found: str
) -> None:
    begun = estimator_in(tmp_path)
    begun.train(batches(2), max_steps=2)
    with pytest.raises(ModelDirError, match=f"feature 'word' is int64.. {found}, expected int64.. of 5000 ids"):
        begun.train(batches(2, **declared), max_steps=4)
    begun.train(batches(2), max_steps=4)


def test_a_job_that_resumes_counts_on(tmp_path: Path) -> None:
    estimator = estimator_in(tmp_path)
    for steps in (1, 2, 3):
        estimator.train(batches(1, admit_after={"word": 3}), max_steps=steps)
        assert (weights(estimator, OFTEN) != [0.0]) == (steps == 3)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"admit_after": {"word": 0}}, "admit_after of 'word' is 0: expected an int >= 1"),
        ({"admit_after": {"word": 2**62}}, r"admit_after of 'word' is 4\d+: expected an int >= 1, below 2\*\*62"),
        ({"expire_after_steps": {"word": 2**70}}, r"expire_after_steps of 'word' .* below 2\*\*62"),
        ({"expire_after_steps": {"word": True}}, "expire_after_steps of 'word' is True: expected an int >= 1"),
        ({"admit_after": 3}, "admit_after is 3: expected a dict from names of features to ints"),
        ({"expire_after_steps": {"wort": 3}}, "expire_after_steps names 'wort': .* did you mean 'word'"),
    ],
)
def test_what_is_no_lifetime_is_refused(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        batches(1, **declared)()


def test_a_lifetime_needs_ids() -> None:
    with pytest.raises(InputError, match="admit_after names 'x': expected its num_ids, too"):
        Dataset({"x": np.array([1, 2])}, [0, 1], admit_after={"x": 2})


def lifetime_of_words(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> EstimatorSpec:
    """A model_fn of the user: a sparse table of the lifetime in `params`, or none."""
    if params:
        loss = (embedding_lookup("words", features["word"], MANY, 1, **params)[:, 0] ** 2).sum()
    else:
        loss = get_variable("w", ()) ** 2
    return EstimatorSpec(mode, loss=loss, train_op=GradientDescent(0.1).minimize(loss))


@pytest.mark.parametrize("params", [{}, {"admit_after": 2}, {"admit_after": 3, "expire_after_steps": 9}])
def test_a_lifetime_that_a_model_fn_gives_no_table_is_refused(params: dict[str, Any], tmp_path: Path) -> None:
    estimator = Estimator(lifetime_of_words, str(tmp_path), RunConfig(tf_random_seed=3), params)
    words = "feature 'word' has admit_after 3, but model_fn looks up no sparse table with that lifetime"
    with pytest.raises(InputError, match=words):
        estimator.train(batches(1, admit_after={"word": 3}), max_steps=1)
    assert estimator.latest_checkpoint() is None


def test_a_lifetime_that_a_model_fn_gives_a_table_is_taken(tmp_path: Path) -> None:
    estimator = Estimator(lifetime_of_words, str(tmp_path), RunConfig(tf_random_seed=3), {"admit_after": 3})
    estimator.train(batches(2, admit_after={"word": 3}), max_steps=2)
    assert num_rows(tmp_path) == 0, "no id came three times"


def test_a_lifetime_beside_layers_of_columns_is_refused(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        words = feature_column.categorical_column_with_identity("word", MANY)
        loss = (feature_column.linear_model(features, words) ** 2).sum()
        return EstimatorSpec(mode, loss=loss, train_op=GradientDescent(0.1).minimize(loss))

    with pytest.raises(InputError, match="looks up no sparse table with that lifetime"):
        Estimator(model_fn, str(tmp_path)).train(batches(1, expire_after_steps={"word": 3}), max_steps=1)


def test_columns_and_crosses_of_record_files_have_one(tmp_path: Path) -> None:
    rows = [("u", "v", 1.0), ("u", "w", 1.0), ("x", "v", 1.0), ("u", "v", 1.0)]
    (tmp_path / "t.csv").write_text("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))

    def records(admit_after: int = 2, expire_after_steps: int | None = None) -> Any:
        crosses = {"a_x_b": CrossOptions(["a", "b"], MANY, admit_after=admit_after)}
        columns = {"a": ColumnOptions(hash_buckets=MANY, admit_after=3, expire_after_steps=expire_after_steps)}
        given = Csv(str(tmp_path / "t.csv"), label="y", columns=columns, crosses=crosses)
        return partial(open_dataset, given, batch_size=1)

    estimator = estimator_in(tmp_path / "m")
    estimator.train(records(), max_steps=4)
    assert num_rows(tmp_path / "m") == 2, "u three times; u x v twice"
    with pytest.raises(ModelDirError) as caught:
        estimator.train(records(5, 100), max_steps=5)
    for words in (
        "column 'a' has expire_after_steps 100, expected none",
        "cross 'a_x_b' has admit_after 5, expected 2",
    ):
        assert words in str(caught.value)
