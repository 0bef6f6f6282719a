"""The schema of the training input stays with the model: in checkpoints, and for every later input."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import InputError, ModelDirError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.local import run_local
from psflow.ps_runtime.estimator.model_dir import Fork
from psflow.ps_runtime.estimator.planning import plan_evaluations
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import MATRIX
from tests.ps_runtime.estimator.regression import X, Y, regression

VALUES = {"a": X[:, 0], "b": X[:, 1]}


def plane(features: Any, labels: Any, mode: str) -> Any:
    """Be the regression of two columns."""
    rows = np.zeros(len(features[MATRIX]))
    return regression({"x": features[MATRIX], "row": rows}, labels, mode)


def table(columns: str = "ab") -> Callable[[], Dataset]:
    """Return an input_fn of the records with these columns; what is neither a nor b is noise."""
    noise = np.full(len(X), 9, np.float32)
    matrix = np.stack([VALUES.get(name, noise) for name in columns], axis=1)
    return lambda: Dataset({MATRIX: matrix}, Y, columns=tuple(columns), label="y").batch(8)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Estimator:
    """Train on the columns a, b; evaluate on these, and on another order of more."""
    config = RunConfig(save_checkpoints_steps=3, tf_random_seed=1)
    estimator = Estimator(plane, str(tmp_path_factory.mktemp("trained")), config)
    specs = [
        EvalSpec(table(), None, start_delay_secs=0, throttle_secs=0),
        EvalSpec(table("bxa"), None, name="other", start_delay_secs=0, throttle_secs=0),
    ]
    with Attempt(estimator, TrainSpec(lambda: table()().repeat(), 6), specs) as attempt:
        run_local(attempt.job(), lambda event: None, attempt.check)
    return estimator


def test_it_is_part_of_every_checkpoint(trained: Estimator) -> None:
    store = CheckpointStore(trained.model_dir)
    assert [store.manifest(step).model.schema for step in store.steps()] == [table()().schema()] * 3


def test_every_evaluation_reads_columns_by_name(trained: Estimator) -> None:
    by_name: dict[str, list[Any]] = {}
    for evaluation in EvaluationLog(trained.model_dir).read():
        by_name.setdefault(evaluation.name, []).append(evaluation.metrics)
    assert by_name.keys() == {"", "other"}
    assert by_name[""] == by_name["other"]
    assert trained.evaluate(table("ba")) == by_name[""][-1]


def test_what_an_input_has_beside_is_reported_once(trained: Estimator, caplog: pytest.LogCaptureFixture) -> None:
    trained.evaluate(table("bxay"))
    list(trained.predict(table("bxa")))
    assert caplog.messages == ["the input has 'x', which the model does not read: ignored"] * 2
    caplog.clear()
    specs = [EvalSpec(table()), EvalSpec(table("bxa"), name="other")]
    with Attempt(trained, TrainSpec(table(), 6), specs):
        assert caplog.messages == ["the eval_other input has 'x', which the model does not read: ignored"]


def test_a_blank_cell_of_a_column_in_another_place_is_named_or_its_row_left_out(
    trained: Estimator, tmp_path: Path
) -> None:
    rows = [f"{b},{a},{y}" for a, b, y in zip(VALUES["a"], VALUES["b"], Y, strict=True)]
    whole, holed = tmp_path / "whole.csv", tmp_path / "holed.csv"
    whole.write_text("\n".join(["b,a,y", *rows[:2], *rows[3:]]) + "\n")
    holed.write_text("\n".join(["b,a,y", *rows[:2], f"{VALUES['b'][2]},,{Y[2]}", *rows[3:]]) + "\n")

    def read(path: Path) -> Any:
        return partial(open_dataset, Csv(path=str(path), label="y"), batch_size=8)

    words = r"holed\.csv: column 'a' has 1 cell that is missing, .* the first in row 4 \(the header is row 1"
    with pytest.raises(InputError, match=words):
        trained.evaluate(read(holed))
    assert trained.evaluate(read(holed), non_finite="drop") == trained.evaluate(read(whole))


def test_predictions_read_columns_by_name_and_need_no_labels(trained: Estimator) -> None:
    expected = [row["y"] for row in trained.predict(table())]

    def unlabelled() -> Dataset:
        return Dataset(table("xba")().features, columns=("x", "b", "a")).batch(4)

    assert [row["y"] for row in trained.predict(unlabelled)] == expected


@pytest.mark.parametrize("columns", ["axx", "cax"])
def test_a_missing_column_is_refused_by_everything(trained: Estimator, columns: str) -> None:
    names = tuple(columns.replace("xx", "xz"))

    def lacking() -> Dataset:
        return Dataset({MATRIX: np.zeros((4, 3), np.float32)}, np.zeros(4, np.float32), columns=names).batch(4)

    model = CheckpointStore(trained.model_dir).manifest(6).model
    for use in (
        lambda: trained.evaluate(lacking),
        lambda: list(trained.predict(lacking)),
        lambda: Attempt(trained, TrainSpec(table(), 9), EvalSpec(lacking)),
        lambda: plan_evaluations(
            trained.caller,
            [EvalSpec(lacking)],
            model,
            lambda labels, where, schema: None,
            KeptInputs(trained.model_dir),
        ),
    ):
        with pytest.raises(InputError, match=r"the (eval|predict) input has no column 'b'"):
            use()


def test_another_training_input_is_refused_on_resume_and_in_a_fork(trained: Estimator, tmp_path: Path) -> None:
    words = "training input: the columns are in another order: column 1 is 'b', expected 'a'"
    with pytest.raises(ModelDirError, match=words):
        trained.train(table("ba"), max_steps=9)
    other = Estimator(plane, str(tmp_path / "fork"))
    with pytest.raises(ModelDirError, match=words):
        Attempt(other, TrainSpec(table("ba"), 9), None, fork=Fork(trained.model_dir, other.model_dir))


def test_a_feature_that_cannot_be_given_again_is_refused_before_training(tmp_path: Path) -> None:
    def words() -> Dataset:
        return Dataset({MATRIX: X, "who": np.full(len(X), b"ann", "S10")}, Y).batch(4)

    def of_somebody(features: Any, labels: Any, mode: str) -> Any:
        assert features["who"][0] == b"ann"
        return plane(features, labels, mode)

    estimator = Estimator(of_somebody, str(tmp_path))
    with pytest.raises(InputError, match=r"the train input: feature 'who' has dtype \|S10, which cannot be given"):
        estimator.train(words, max_steps=1)
    assert not list(tmp_path.iterdir())
    Estimator(plane, str(tmp_path)).train(words, max_steps=1)  # it does not read who


def test_dates_and_sparse_matrices_are_no_features(tmp_path: Path) -> None:
    from scipy.sparse import csr_matrix

    def batches(features: Any) -> Any:
        return lambda: iter([(features, np.zeros(3))])

    estimator = Estimator(plane, str(tmp_path))
    with pytest.raises(InputError, match=r"features\['when'\] has dtype datetime64\[D\]"):
        estimator.train(batches({"when": np.zeros(3, "datetime64[D]")}), max_steps=1)
    with pytest.raises(InputError, match=r"features is a sparse matrix \(scipy csr_matrix\): .* with .toarray\(\)"):
        estimator.train(batches(csr_matrix(np.eye(3))), max_steps=1)
