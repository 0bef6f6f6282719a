"""A model asks for the features that it reads, in each mode, and for no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import metrics
from psflow.feature_column import numeric_column
from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import InputError, ModelDirError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.canned.dnn_linear_combined import DNNLinearCombinedRegressor
from psflow.ps_runtime.estimator.canned.linear import LinearRegressor
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.local import run_local
from psflow.ps_runtime.estimator.model_dir import Fork
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.evaluation import OpenedEvaluation
from psflow.ps_runtime.model.export.bundle import ExportBundle
from psflow.ps_runtime.model.export.exporters import LatestExporter
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.optimizers import GradientDescent
from psflow.ps_runtime.specs.run_config import RunConfig

X = np.linspace(-1, 1, 12, dtype=np.float32)
Y = 2 * X
KNOWN = {
    "x": X,
    "id": np.arange(12),
    "word": np.array(["a", "b", "c"] * 4),
    "weight": np.ones(12, np.float32),
    "group": np.arange(12) % 2,
}
CONFIG = RunConfig(save_checkpoints_steps=3, tf_random_seed=1)


def data(names: str, labels: bool = True, **others: Any) -> Callable[[], Dataset]:
    features = {name: KNOWN[name] for name in names.split()} | others
    return lambda: Dataset(features, Y if labels else None).batch(4)


def model(features: Any, labels: Any, mode: str, params: Mapping[str, Any]) -> EstimatorSpec:
    """Be a line, with features beside that `params` name for each mode."""
    beside = {name: features[name] for name in params.get(mode, ())}
    w = get_variable("w", initializer=0.5)
    predicted = features["x"] * w
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": predicted, **beside})
    error = predicted - labels
    train_op = GradientDescent(0.1).apply_gradients({"w": np.float32(2 * (error * features["x"]).mean())})
    means = {name: metrics.mean(array.astype(float)) for name, array in beside.items()}
    return EstimatorSpec(mode, loss=float((error**2).mean()), train_op=train_op, eval_metric_ops=means)


def estimator(model_dir: Path, **reads: Any) -> Estimator:
    return Estimator(model, str(model_dir), CONFIG, {mode: names.split() for mode, names in reads.items()})


def line(model_dir: Path) -> LinearRegressor:
    return LinearRegressor([numeric_column("x")], model_dir=str(model_dir), config=CONFIG)


def wide(model_dir: Path) -> DNNLinearCombinedRegressor:
    return DNNLinearCombinedRegressor(
        model_dir=str(model_dir),
        linear_feature_columns=["x"],
        dnn_feature_columns=["x"],
        dnn_hidden_units=[2],
        config=CONFIG,
    )


def schema_of(model_dir: str) -> Any:
    store = CheckpointStore(model_dir)
    latest = store.latest()
    assert latest is not None
    return store.manifest(latest).model.schema


@pytest.mark.parametrize("make", [estimator, line, wide])
def test_what_nobody_reads_is_asked_of_nobody(
    make: Callable[[Path], Estimator], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained = make(tmp_path)
    trained.train(data("x id word"))
    assert "the train input has 'id', 'word', which training does not read: ignored" in caplog.messages
    expected = trained.evaluate(data("x id word"))
    for names in ("x", "x group", "x word"):
        assert trained.evaluate(data(names)) == expected
        assert len(list(trained.predict(data(names, labels=False)))) == 12
    # of what is not read nothing is judged
    wrong = data("x", id=np.array(["none"] * 12), word=np.zeros((12, 3)))
    assert trained.evaluate(wrong) == expected
    trained.train(data("x group"))
    trained.train(wrong)
    assert schema_of(str(tmp_path)).names == ("x",)
    assert trained.evaluate(data("x"))["global_step"] == 9


@pytest.mark.parametrize("form", ["stream", "computed"])
def test_a_stream_and_a_computed_input_are_asked_for_the_same(form: str, tmp_path: Path) -> None:
    def given(names: str) -> Any:
        whole = data(names)()
        return iter([whole.read(0, 0, 12)]) if form == "stream" else whole.map(lambda features, y: (features, y))

    trained = estimator(tmp_path, eval="group", infer="id")
    trained.train(lambda: given("x word"))
    assert trained.evaluate(lambda: given("x group id"))["group"] == 0.5
    assert [row["id"] for row in trained.predict(lambda: given("x id"))] == list(range(12))
    with pytest.raises(InputError, match="has no feature 'group', which model reads in eval mode"):
        trained.evaluate(lambda: given("x id"))


def test_a_feature_that_is_removed_with_del_is_read(tmp_path: Path) -> None:
    def without_id(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        del features["id"]
        return model(features, labels, mode, {})

    trained = Estimator(without_id, str(tmp_path), CONFIG)
    trained.train(data("x id word"))
    assert schema_of(trained.model_dir).names == ("x", "id")
    assert trained.evaluate(data("x id"))["global_step"] == 3
    assert len(list(trained.predict(data("x id word", labels=False)))) == 12
    with pytest.raises(InputError, match=r"has no feature 'id', which \S+ reads in eval mode at"):
        trained.evaluate(data("x word"))


def test_a_feature_belongs_to_the_mode_that_reads_it(tmp_path: Path) -> None:
    trained = estimator(tmp_path, train="weight", eval="group", infer="id")
    trained.train(data("x weight word"))
    assert trained.evaluate(data("x group"))["group"] == 0.5
    assert [row["id"] for row in trained.predict(data("x id", labels=False))] == list(range(12))
    assert schema_of(trained.model_dir).names == ("x", "weight")


@pytest.mark.parametrize("given", ["x", "x word"])
def test_a_missing_feature_is_named_with_its_reader(given: str, tmp_path: Path) -> None:
    place = rf"\S*test_read_features\.py:{model.__code__.co_firstlineno + 2}"
    trained = estimator(tmp_path, eval="group", infer="id")
    trained.train(data("x"))
    with pytest.raises(InputError, match=rf"has no feature 'group', which model reads in eval mode at {place}; "):
        trained.evaluate(data(given))
    with pytest.raises(InputError, match=rf"has no feature 'id', which model reads in infer mode at {place}; "):
        list(trained.predict(data(given, labels=False)))
    with pytest.raises(InputError, match=rf"has no feature 'group', which model reads in eval mode at {place}; "):
        Attempt(trained, TrainSpec(data("x"), 9), EvalSpec(data(given)))
    with pytest.raises(InputError, match="the eval input has no feature 'x', which model reads in eval mode"):
        trained.evaluate(data("word group"))


def test_all_missing_features_are_named_at_once(tmp_path: Path) -> None:
    trained = estimator(tmp_path, eval="group weight id")
    trained.train(data("x group weight id word", labels=True))
    with pytest.raises(InputError) as caught:
        trained.evaluate(data("x word"))
    assert [fault.partition("'")[2].partition("'")[0] for fault in caught.value.faults] == ["group", "weight", "id"]


def test_a_later_training_and_a_fork_are_held_against_what_is_read(tmp_path: Path) -> None:
    first = estimator(tmp_path / "first", train="weight")
    first.train(data("x weight id"))
    with pytest.raises(ModelDirError, match="training input: feature 'weight' is missing"):
        estimator(tmp_path / "first").train(data("x weight"))
    other = estimator(tmp_path / "other", train="weight")
    with Attempt(other, TrainSpec(data("weight x word"), 9), None, fork=Fork(first.model_dir, other.model_dir)):
        pass
    warm = Estimator(
        model, str(tmp_path / "warm"), CONFIG, {"train": ["weight"]}, WarmStartSettings(first.model_dir, ".*")
    )
    warm.train(data("x weight group"), max_steps=1)


def test_an_evaluation_beside_training_and_its_export_read_what_their_modes_do(tmp_path: Path) -> None:
    written: list[ExportBundle] = []

    class Writer:
        def write(self, directory: str, bundle: ExportBundle) -> None:
            Path(directory).mkdir()
            written.append(bundle)

    trained = estimator(tmp_path, eval="group", infer="id")
    spec = EvalSpec(data("group id x word"), exporters=LatestExporter("latest"), start_delay_secs=0, throttle_secs=0)
    with Attempt(trained, TrainSpec(data("x weight"), 3), spec) as attempt:
        run_local(attempt.job(writer=Writer()), lambda event: None, attempt.check)
    assert written[-1].schema.names == ("x", "id") == tuple(written[-1].features)
    assert written[-1].metrics["group"] == 0.5
    schema = schema_of(trained.model_dir)
    assert schema.names == ("x",)
    # a replay has no exporters, and must find the same input
    again = OpenedEvaluation(trained.caller.reading(schema), replace(spec, exporters=None), schema)
    again.measure(written[-1].values, 3)
    assert {record.input_digest for record in EvaluationLog(trained.model_dir).read()} == {again.digest}


def test_an_export_of_a_checkpoint_asks_for_what_predictions_read(tmp_path: Path) -> None:
    written: list[ExportBundle] = []

    class Writer:
        def write(self, directory: str, bundle: ExportBundle) -> None:
            Path(directory).mkdir()
            written.append(bundle)

    trained = estimator(tmp_path / "trained", train="weight", infer="id")
    trained.train(data("x weight id word"))
    trained.export_saved_model(str(tmp_path / "export"), writer=Writer())
    assert [spec.name for spec in written[-1].schema.features] == ["x", "id"]
    assert written[-1].schema.whole is written[-1].schema


def sometimes(features: Any, labels: Any, mode: str, params: Mapping[str, Any]) -> EstimatorSpec:
    """Be the line, and read `weight` in training, if `params` say so, or where a row is of group 1."""
    if (features["group"] > 0).any() or mode == params.get("reads_in"):
        features["weight"].sum()
    return model(features, labels, mode, {})


LATE = {"group": (np.arange(12) > 7).astype(int)}


def late_input(form: str, directory: Path, names: str) -> Callable[[], Any]:
    """Return an input whose last batch alone has group 1."""
    whole = data(names, **LATE)()
    if form == "memory":
        return lambda: whole
    if form == "stream":
        return lambda: (whole.read(0, start, start + 4) for start in (0, 4, 8))
    columns = {name: (KNOWN | LATE)[name] for name in (*names.split(), "group")} | {"y": Y}
    path = directory / "late.csv"
    path.write_text(
        "\n".join(",".join(map(str, row)) for row in [tuple(columns), *zip(*columns.values(), strict=True)])
    )
    return partial(open_dataset, Csv(path=str(path), label="y"), batch_size=4)


@pytest.mark.parametrize("form", ["memory", "stream", "file"])
def test_what_training_reads_and_an_input_has_stays_for_a_later_batch(form: str, tmp_path: Path) -> None:
    given = late_input(form, tmp_path, "x weight id")
    trained = Estimator(sometimes, str(tmp_path / "trained"), CONFIG, {"reads_in": ModeKeys.TRAIN})
    trained.train(given)
    assert schema_of(trained.model_dir).names == ("x", "weight", "group")
    assert trained.evaluate(given)["global_step"] == 3
    assert len(list(trained.predict(given))) == 12
    # if no batch reads it, it is not requested
    assert trained.evaluate(data("x id", group=np.zeros(12, int)))["global_step"] == 3


@pytest.mark.parametrize("form", ["memory", "stream", "file"])
def test_a_feature_that_was_left_out_is_not_said_to_be_missing(form: str, tmp_path: Path) -> None:
    given = late_input(form, tmp_path, "x weight id")
    trained = Estimator(sometimes, str(tmp_path / "trained"), CONFIG)
    trained.train(given, steps=1)
    place = rf"\S*test_read_features\.py:{sometimes.__code__.co_firstlineno + 3}"
    words = "the input is read without its feature 'weight', which the first call of sometimes did not read in {} mode"
    with pytest.raises(InputError, match=rf"{words.format('eval')}, and a later one does at {place}; read it"):
        trained.evaluate(given)
    with pytest.raises(InputError, match=rf"{words.format('infer')}, and a later one does at {place}; read it"):
        list(trained.predict(given))
    with pytest.raises(InputError, match="the input has no feature 'weight', which sometimes reads in eval mode"):
        trained.evaluate(late_input("memory", tmp_path, "x id"))


def test_a_model_fn_that_changes_a_batch_in_place_is_measured_on_the_batch_that_came(tmp_path: Path) -> None:
    def centred(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        if mode == ModeKeys.EVAL:
            features["x"] -= 5
            labels -= 10
            features["group"].sum()
            means = {"x": metrics.mean(features["x"]), "y": metrics.mean(labels)}
            return EstimatorSpec(mode, loss=0.0, eval_metric_ops=means)
        return model(features, labels, mode, {})

    def given(names: str) -> Any:
        yield {name: KNOWN[name].copy() for name in names.split()}, Y.copy()

    trained = Estimator(centred, str(tmp_path), CONFIG)
    trained.train(data("x"))
    found = trained.evaluate(lambda: given("x group id"))
    assert (found["x"], found["y"]) == (pytest.approx(-5), pytest.approx(-10))


def test_record_files_are_read_for_the_columns_that_the_model_reads(tmp_path: Path) -> None:
    def read(columns: str, name: str = "data.csv", **options: Any) -> Callable[[], Any]:
        rows = zip(*(KNOWN[column] for column in columns.split()), Y, strict=True)
        text = [",".join([*columns.split(), "y"]), *(",".join(map(str, row)) for row in rows)]
        path = tmp_path / f"{columns.replace(' ', '_')}_{name}"
        path.write_text("\n".join(text) + "\n")
        return partial(open_dataset, Csv(path=str(path), label="y", **options), batch_size=4)

    trained = estimator(tmp_path / "trained", eval="group", infer="id")
    trained.train(read("x word group id"))
    assert schema_of(trained.model_dir).names == ("x",)
    assert schema_of(trained.model_dir).preprocessing.names == ("x",)
    assert np.isfinite(trained.evaluate(read("group x"))["group"])
    assert len(list(trained.predict(read("x id")))) == 12
    with pytest.raises(
        InputError, match=r"the eval input has no feature 'group', which model reads in eval mode at \S*py:\d+; its"
    ):
        trained.evaluate(read("x word"))
    trained.train(read("x group id weight"))
    with pytest.raises(InputError, match=r"word_data\.csv has no column 'x'"):
        trained.evaluate(read("word"))  # nothing that the model was trained on is there
    weighted = estimator(tmp_path / "weighted", train="weight")
    weighted.train(read("x weight"))
    assert weighted.evaluate(read("x"))["global_step"] == 3
    with pytest.raises(
        InputError, match=r"the eval input has no feature 'x', which model reads in eval mode at \S*py:\d+; its"
    ):
        weighted.evaluate(read("weight"))


def test_files_for_a_model_of_arrays_are_read_for_what_the_mode_reads(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("group,x,y\n" + "\n".join(f"{i % 2},{x},{2 * x}" for i, x in enumerate(X)) + "\n")
    trained = estimator(tmp_path / "trained", eval="group")
    trained.train(data("x group id"))
    found = trained.evaluate(partial(open_dataset, Csv(path=str(path), label="y"), batch_size=4))
    assert found["group"] == 0.5


def test_a_table_is_read_for_the_columns_that_the_mode_reads(tmp_path: Path) -> None:
    matrix = np.stack([KNOWN["group"], X], axis=1).astype(np.float32)
    trained = estimator(tmp_path, eval="group")
    trained.train(data("x id"))
    table = Dataset({"features": matrix}, Y, columns=("group", "x")).batch(4)
    assert trained.evaluate(lambda: table)["group"] == 0.5


def with_id(path: Path, cell: str) -> Csv:
    rows = [f"{x},{cell if row == 5 else row + 0.5},{y}" for row, (x, y) in enumerate(zip(X, Y, strict=True))]
    path.write_text("\n".join(["x,id,y", *rows]) + "\n")
    return Csv(path=str(path), label="y")


@pytest.mark.parametrize("cell", ["Total", ""])
@pytest.mark.parametrize("mode", ["", "train", "eval", "infer"])
def test_refused_cells_of_a_column_stop_a_training_only_if_a_mode_reads_it(
    cell: str, mode: str, tmp_path: Path
) -> None:
    read = partial(open_dataset, with_id(tmp_path / "data.csv", cell), batch_size=4)
    trained = estimator(tmp_path / "model", **({mode: "id"} if mode else {}))
    if mode:
        with pytest.raises(InputError, match=r"data.csv: column 'id'.* row 7 .*"):
            trained.train(read)
        return
    trained.train(read)
    assert schema_of(trained.model_dir).names == ("x",)
    assert [x for batch in trained.predict(read) for x in batch.values()]
    assert trained.evaluate(read)["global_step"] == 3


def test_a_column_that_was_left_out_is_judged_once_model_fn_reads_it(tmp_path: Path) -> None:
    read = partial(open_dataset, with_id(tmp_path / "data.csv", "Total"), batch_size=4)
    with Attempt(estimator(tmp_path / "model"), TrainSpec(read, 3), None) as attempt:
        assert attempt.plan.ignored == ("the train input has 'id', which training does not read: ignored",)
        assert attempt.plan.input.num_records == 12
        run_local(attempt.job(), lambda event: None, attempt.check)
    of_role = KeptInputs(str(tmp_path / "model")).of_flow("train").reopened(read(), "error", None, "the train input")
    assert of_role.num_records == 12
    assert list(of_role.read(0, 0, 12)[0]) == ["x"]
    with pytest.raises(InputError, match=r"column 'id': 11 of 12 are numbers; row 7 .* is 'Total'"):
        Attempt(estimator(tmp_path / "model", train="id"), TrainSpec(read, 6), None)
