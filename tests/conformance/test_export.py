"""Exports from Python: export_saved_model, receivers, outputs and their signatures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import psflow
from psflow import BestExporter, EstimatorSpec, FinalExporter, LatestExporter, ModeKeys, export, placeholder
from psflow.ps_runtime.errors import ModelFnError, NoCheckpointError, UsageError
from psflow.ps_runtime.estimator import saved_model
from psflow.ps_runtime.model.export import bundle as export_bundle
from psflow.tasks.exports.writer import MlflowModelWriter
from tests.conformance.programs import estimator_in, line, rows
from tests.conformance.test_exporters import run


class Writer:
    """Writes the global step, and keeps what it was given."""

    def __init__(self) -> None:
        self.bundles: list[Any] = []

    def write(self, directory: str, bundle: Any) -> None:
        Path(directory).mkdir()
        Path(directory, "step").write_text(str(bundle.global_step))
        self.bundles.append(bundle)


def serving() -> export.ServingInputReceiver:
    """Receive numbers."""
    x = placeholder(np.float32, [None], "x")
    return export.ServingInputReceiver({"x": x}, {"x": x})


@pytest.fixture
def writer(monkeypatch) -> Writer:
    """Return what writes all exports of a test."""
    made = Writer()
    monkeypatch.setattr(saved_model, "installed_writer", lambda: made)
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Any:
    """Return an Estimator with checkpoints of the steps 0, 2 and 4, which exports only read."""
    estimator = estimator_in(tmp_path_factory.mktemp("trained") / "model", save_checkpoints_steps=2)
    return estimator.train(lambda: rows().repeat(), max_steps=4)


def files(folder: Any) -> dict[str, str]:
    """Return the text of each file below a folder but the lock and the record of its checkpoint."""
    paths = sorted(
        path for path in Path(folder).rglob("*") if path.is_file() and path.name not in (".lock", "export.json")
    )
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


# export_saved_model


def test_the_latest_checkpoint_is_exported_and_its_path_returned(trained, writer, tmp_path):
    path = trained.export_saved_model(str(tmp_path / "base"), serving)
    assert path == str(tmp_path / "base" / "1")
    assert files(tmp_path / "base") == {"1/step": "4"}
    [bundle] = writer.bundles
    assert bundle.serving_input_receiver_fn is serving
    assert bundle.values.variables["w"] == trained.get_variable_value("w")


def test_the_checkpoint_that_a_path_names(trained, writer, tmp_path):
    step_2 = Path(trained.latest_checkpoint()).with_name("step_00000002")
    trained.export_saved_model(tmp_path, serving, checkpoint_path=str(step_2))
    assert files(tmp_path / "1") == {"step": "2"}


def test_arguments_have_the_places_of_the_original(trained, writer, tmp_path):
    (tmp_path / "words.txt").write_text("a b")
    assets = {"words.txt": str(tmp_path / "words.txt")}
    path = trained.export_saved_model(str(tmp_path / "base"), serving, assets, False, trained.latest_checkpoint())
    assert files(path) == {"assets.extra/words.txt": "a b", "step": "4"}


def test_a_version_is_larger_than_any_there(trained, writer, tmp_path):
    for name in ("7", "1700000000", "latest", "01700000001"):
        (tmp_path / name).mkdir()
    assert Path(trained.export_saved_model(tmp_path)).name == "1700000001"
    assert Path(trained.export_saved_model(tmp_path)).name == "1700000002"


def test_other_things_in_the_folder_stay(trained, writer, tmp_path):
    for name in (".tmp-0123abcd", "temp-1"):
        (tmp_path / "base" / name).mkdir(parents=True)
        (tmp_path / "base" / name / "kept").write_text("")
    trained.export_saved_model(tmp_path / "base")
    assert set(files(tmp_path / "base")) == {".tmp-0123abcd/kept", "1/step", "temp-1/kept"}


def test_an_export_appears_whole_or_not_at_all(trained, writer, tmp_path, monkeypatch):
    def failing(directory, bundle):
        Writer().write(directory, bundle)
        raise RuntimeError("half-way")

    monkeypatch.setattr(writer, "write", failing)
    with pytest.raises(RuntimeError, match="half-way"):
        trained.export_saved_model(tmp_path / "base")
    assert files(tmp_path / "base") == {}


def test_without_a_checkpoint_there_is_nothing_to_export(make, writer, tmp_path):
    with pytest.raises(ValueError, match="there is no checkpoint yet; train first") as caught:
        make().export_saved_model(tmp_path / "base", serving)
    assert type(caught.value) is NoCheckpointError
    assert not (tmp_path / "base").exists()


def test_a_checkpoint_that_is_gone(trained, writer, tmp_path):
    with pytest.raises(ValueError, match="step_00000003"):
        trained.export_saved_model(
            tmp_path / "base", checkpoint_path=str(Path(trained.latest_checkpoint()).with_name("step_00000003"))
        )
    assert not (tmp_path / "base").exists()


def test_checkpoints_stay_as_they_are(trained, writer, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in Path(trained.model_dir).rglob("*") if path.is_file()}
    trained.export_saved_model(tmp_path / "base", serving)
    after = {path: path.stat().st_mtime_ns for path in Path(trained.model_dir).rglob("*") if path.is_file()}
    assert {path: time for path, time in after.items() if "pin" not in path.as_posix()} == before


def test_without_a_function_clients_send_what_training_read(trained, writer, tmp_path):
    trained.export_saved_model(tmp_path)
    [bundle] = writer.bundles
    assert bundle.serving_input_receiver_fn is None
    assert [(spec.name, spec.dtype, spec.shape) for spec in bundle.schema.features] == [("x", "float32", ())]
    assert {name: array.shape for name, array in bundle.predictions.items()} == {"y": (1,), "twice": (1,)}


def test_a_writer_may_be_given(trained, tmp_path):
    path = trained.export_saved_model(tmp_path, writer=Writer())
    assert files(path) == {"step": "4"}


def test_by_default_it_is_an_mlflow_model():
    assert type(export_bundle.installed_writer()) is MlflowModelWriter


def test_an_installation_without_a_writer_says_so(monkeypatch):
    monkeypatch.setattr(export_bundle, "WRITERS", "psflow.no_such_group")
    with pytest.raises(UsageError, match=r"expected one writer of models .* found none; install psflow again"):
        export_bundle.installed_writer()


@pytest.mark.parametrize(
    ("arguments", "kind", "fault"),
    [
        ({"export_dir_base": None}, TypeError, "export_dir_base should be a str or path, got None"),
        ({"export_dir_base": 3}, TypeError, "export_dir_base should be a str or path, got int 3"),
        ({"export_dir_base": "http://h/base"}, ValueError, "http://h/base: one process at a time may write there"),
        ({"serving_input_receiver_fn": 3}, TypeError, "serving_input_receiver_fn should be callable, got int 3"),
        ({"assets_extra": ["a"]}, TypeError, "assets_extra should be a mapping of names to paths of files, or None"),
        ({"assets_extra": {3: "a"}}, TypeError, "a name of assets_extra should be a str, got int 3"),
        ({"assets_extra": {"a": 3}}, TypeError, "assets_extra['a'] should be the path of a file, got int 3"),
        ({"assets_extra": {"../a": "a"}}, ValueError, "assets_extra['../a']: expected a name below assets.extra"),
        ({"assets_extra": {"/a": "a"}}, ValueError, "assets_extra['/a']: expected a name below assets.extra"),
        ({"assets_extra": {"": "a"}}, ValueError, "assets_extra['']: expected a name below assets.extra"),
        ({"assets_extra": {"a": "no/file"}}, ValueError, "assets_extra['a']: there is no file no/file"),
        ({"as_text": True}, ValueError, "as_text=True: an export has no text form; leave it out"),
        ({"checkpoint_path": 3}, TypeError, "checkpoint_path should be a str or None, got int 3"),
        ({"experimental_mode": ModeKeys.EVAL}, ValueError, "an export predicts, and cannot train or evaluate"),
    ],
)
def test_arguments_that_it_refuses(trained, writer, tmp_path, arguments, kind, fault):
    with pytest.raises(kind, match=re.escape(fault)):
        trained.export_saved_model(**{"export_dir_base": tmp_path / "base"} | arguments)
    assert files(tmp_path / "base") == {}


def test_assets_may_lie_in_folders(trained, writer, tmp_path):
    (tmp_path / "a").write_text("1")
    path = trained.export_saved_model(tmp_path / "base", assets_extra={"deep/er/b": tmp_path / "a"})
    assert files(path) == {"assets.extra/deep/er/b": "1", "step": "4"}


# experimental_export_all_saved_models


def test_the_function_of_mode_infer_is_exported(trained, writer, tmp_path):
    path = trained.experimental_export_all_saved_models(str(tmp_path), {ModeKeys.PREDICT: serving})
    assert files(path) == {"step": "4"}
    assert writer.bundles[0].serving_input_receiver_fn is serving


@pytest.mark.parametrize("mode", [ModeKeys.TRAIN, ModeKeys.EVAL, "serve"])
def test_other_modes_are_refused_by_name(trained, writer, tmp_path, mode):
    said = re.escape(f"{mode!r}: an export predicts, and cannot train or evaluate; export")
    with pytest.raises(ValueError, match=said):
        trained.experimental_export_all_saved_models(tmp_path, {ModeKeys.PREDICT: serving, mode: serving})


@pytest.mark.parametrize("functions", [{}, {ModeKeys.PREDICT: None}])
def test_a_mode_without_a_function_is_refused(trained, writer, tmp_path, functions):
    with pytest.raises(ValueError, match=r"input_receiver_fn_map has no function for .*'infer'.*: expected one"):
        trained.experimental_export_all_saved_models(tmp_path, functions)


def test_a_map_of_another_type_is_an_error_of_type(trained, writer, tmp_path):
    with pytest.raises(
        TypeError, match="input_receiver_fn_map should be a mapping of modes to functions, got function"
    ):
        trained.experimental_export_all_saved_models(tmp_path, serving)


# exporters


@pytest.mark.parametrize(
    "exporter", [FinalExporter("a", serving), LatestExporter("a", serving), BestExporter("a", serving)]
)
def test_exporters_take_the_function_second(exporter):
    assert exporter.serving_input_receiver_fn is serving


def test_arguments_of_exporters_have_the_places_of_the_original():
    latest = LatestExporter("a", serving, {"b": "c"}, False, 2)
    assert (latest.assets_extra, latest.as_text, latest.exports_to_keep) == ({"b": "c"}, False, 2)
    assert FinalExporter("a", serving, {"b": "c"}, False).assets_extra == {"b": "c"}


def test_exporters_hand_on_function_and_assets(make, tmp_path):
    (tmp_path / "words.txt").write_text("a b")
    made = Writer()
    exporters = [FinalExporter("final", serving, {"words": tmp_path / "words.txt"}), LatestExporter("latest")]
    estimator = make()
    assert run(estimator, exporters, writer=made) == {"final": [4], "latest": [0, 4]}
    assert files(Path(estimator.model_dir, "export", "final", "1")) == {"assets.extra/words": "a b", "step": "4"}
    assert [(b.global_step, b.serving_input_receiver_fn) for b in made.bundles] == [(0, None), (4, serving), (4, None)]


@pytest.mark.parametrize("kind", [FinalExporter, LatestExporter, BestExporter])
@pytest.mark.parametrize(
    ("options", "error", "fault"),
    [
        (
            {"serving_input_receiver_fn": 3},
            TypeError,
            "exporter 'a': serving_input_receiver_fn should be callable, got int 3",
        ),
        ({"assets_extra": "eval/*"}, TypeError, "exporter 'a': assets_extra should be a mapping of names to paths"),
        ({"as_text": True}, ValueError, "as_text=True: an export has no text form"),
    ],
)
def test_arguments_that_exporters_refuse(kind, options, error, fault):
    with pytest.raises(error, match=re.escape(fault)):
        kind("a", **options)


def test_a_function_that_no_model_can_hold_is_refused_before_anything_starts(make):
    estimator = make()
    with pytest.raises(ValueError, match=r"serving_input_receiver_fn .*<lambda> cannot be exported") as caught:
        run(estimator, FinalExporter("final", lambda: serving()))
    assert type(caught.value) is ModelFnError
    assert not Path(estimator.model_dir).exists()


# receivers


def test_names_have_the_places_of_the_original():
    assert set(export.__all__) == {
        "ClassificationOutput",
        "ExportOutput",
        "PredictOutput",
        "RegressionOutput",
        "ServingInputReceiver",
        "TensorServingInputReceiver",
        "build_raw_serving_input_receiver_fn",
    }
    assert psflow.export is export


def test_an_array_without_a_name_gets_the_name_of_the_original():
    receiver = export.ServingInputReceiver(np.ones(2), np.ones(2))
    assert (list(receiver.features), list(receiver.receiver_tensors)) == (["feature"], ["input"])
    assert receiver.receiver_tensors_alternatives is None


def test_a_tensor_receiver_keeps_its_feature_without_a_name():
    receiver = export.TensorServingInputReceiver(np.ones(2), np.ones(2))
    assert (type(receiver.features), list(receiver.receiver_tensors)) == (np.ndarray, ["input"])


X = np.ones(2)


@pytest.mark.parametrize(
    ("kind", "arguments", "fault"),
    [
        (export.ServingInputReceiver, (None, X), "features should be a mapping of str to array, got None"),
        (export.ServingInputReceiver, (X, None), "receiver_tensors should be a mapping of str to array, got None"),
        (export.ServingInputReceiver, ({}, X), "features is empty: expected at least one array"),
        (export.ServingInputReceiver, (X, {}), "receiver_tensors is empty: expected at least one array"),
        (export.ServingInputReceiver, ({1: X}, X), "a name of features should be a str, got int 1"),
        (export.ServingInputReceiver, (X, {1: X}), "a name of receiver_tensors should be a str, got int 1"),
        (export.ServingInputReceiver, ({"x": [1]}, X), "features['x'] should be an array, got list [1]"),
        (export.ServingInputReceiver, (X, {"x": "a"}), "receiver_tensors['x'] should be an array, got str 'a'"),
        (
            export.ServingInputReceiver,
            (X, X, {"a": X}),
            "receiver_tensors_alternatives: clients cannot send arrays that",
        ),
        (export.TensorServingInputReceiver, (None, X), "features should be an array, got None"),
        (export.TensorServingInputReceiver, ({"x": X}, X), "features should be an array, got dict"),
        (
            export.TensorServingInputReceiver,
            (X, None),
            "receiver_tensors should be a mapping of str to array, got None",
        ),
        (
            export.TensorServingInputReceiver,
            (X, X, {}),
            "receiver_tensors_alternatives: clients cannot send arrays that",
        ),
    ],
)
def test_what_no_receiver_is(kind, arguments, fault):
    with pytest.raises(ValueError, match=re.escape(fault)):
        kind(*arguments)


# outputs


def test_a_predict_output_has_named_arrays():
    assert list(export.PredictOutput({"a": X, ("b", "c"): X}).outputs) == ["a", "b/c"]
    assert list(export.PredictOutput(X).outputs) == ["output"]


def test_a_regression_output_has_floats():
    assert export.RegressionOutput(X).value is X
    assert list(export.RegressionOutput(X).arrays) == ["outputs"]


def test_a_classification_output_has_scores_classes_or_both():
    words = np.array(["a", "b"])
    assert list(export.ClassificationOutput(X).arrays) == ["scores"]
    assert list(export.ClassificationOutput(classes=words).arrays) == ["classes"]
    assert list(export.ClassificationOutput(X, words).arrays) == ["scores", "classes"]


@pytest.mark.parametrize(
    ("make_output", "fault"),
    [
        (lambda: export.PredictOutput({1: X}), "PredictOutput: a name of outputs should be a str, got int 1"),
        (lambda: export.PredictOutput({"a": 1.5}), "PredictOutput: outputs['a'] should be an array of real numbers"),
        (lambda: export.PredictOutput(None), "PredictOutput: outputs['output'] should be an array of real numbers"),
        (lambda: export.PredictOutput(np.array([{}])), "outputs['output'] should be an array of real numbers"),
        (lambda: export.PredictOutput({"a": X * 1j}), "PredictOutput: outputs['a'] should be an array of real numbers"),
        (lambda: export.PredictOutput({}), "PredictOutput: outputs is empty; give at least one array"),
        (lambda: export.RegressionOutput(1.5), "RegressionOutput: value should be an array of floats, got float 1.5"),
        (lambda: export.RegressionOutput(np.ones(2, int)), "RegressionOutput: value should be an array of floats"),
        (lambda: export.RegressionOutput(None), "RegressionOutput: value should be an array of floats, got None"),
        (lambda: export.ClassificationOutput(), "ClassificationOutput: give scores, classes or both"),
        (lambda: export.ClassificationOutput(np.ones(2, int)), "scores should be an array of floats"),
        (lambda: export.ClassificationOutput(np.array(["a"])), "scores should be an array of floats"),
        (
            lambda: export.ClassificationOutput(X, np.ones(2, int)),
            "classes should be an array of texts, not of class ids",
        ),
    ],
)
def test_what_no_output_is(make_output, fault):
    with pytest.raises(ValueError, match=re.escape(fault)) as caught:
        make_output()
    assert isinstance(caught.value, ModelFnError)


def spec_with(export_outputs: Any, mode: str = "infer") -> EstimatorSpec:
    return EstimatorSpec(mode, predictions={"y": X}, loss=1.0, export_outputs=export_outputs)


PREDICT = export.PredictOutput({"y": X})
REGRESS = export.RegressionOutput(X)


def test_one_output_is_the_default_too():
    assert spec_with({"price": REGRESS}).export_outputs == {"serving_default": REGRESS, "price": REGRESS}
    assert spec_with({"serving_default": REGRESS}).export_outputs == {"serving_default": REGRESS}


def test_several_outputs_name_their_default():
    outputs = {"price": REGRESS, "serving_default": PREDICT}
    assert spec_with(outputs).export_outputs == outputs
    said = "export_outputs has 'price', 'other': expected 'serving_default' among them"
    with pytest.raises(ValueError, match=said):
        spec_with({"price": REGRESS, "other": PREDICT})


def test_none_are_no_outputs():
    assert spec_with(None).export_outputs is None


def test_a_mapping_of_no_outputs_is_refused():
    with pytest.raises(ValueError, match="export_outputs has nothing: expected 'serving_default' among them"):
        spec_with({})


@pytest.mark.parametrize(
    ("outputs", "fault"),
    [
        ([PREDICT], "export_outputs should be a mapping of names of signatures to ExportOutputs, or None, got list"),
        (
            {"serving_default": X},
            "export_outputs['serving_default'] should be a PredictOutput, a ClassificationOutput or",
        ),
        ({1: PREDICT}, "a name of export_outputs should be a str, got int 1"),
    ],
)
def test_outputs_of_another_type_are_errors_of_type(outputs, fault):
    with pytest.raises(TypeError, match=re.escape(fault)):
        spec_with(outputs)


def test_outputs_count_in_mode_infer_alone():
    assert spec_with({"a": 1}, "eval").export_outputs == {"a": 1}


def with_outputs(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """Answer with other arrays than the predictions."""
    spec = line(features, labels, mode)
    if mode != ModeKeys.PREDICT:
        return spec
    outputs = {
        "serving_default": export.PredictOutput(spec.predictions["twice"]),
        "price": export.RegressionOutput(spec.predictions["y"]),
    }
    return EstimatorSpec(mode, spec.predictions, export_outputs=outputs)


def test_an_export_answers_with_the_outputs_and_predict_with_the_predictions(make, writer, tmp_path):
    estimator = make(with_outputs).train(lambda: rows().repeat(), max_steps=2)
    estimator.export_saved_model(tmp_path)
    [bundle] = writer.bundles
    assert bundle.signatures == ("serving_default", "price")
    assert list(bundle.predictions) == ["output"]
    assert sorted(next(estimator.predict(rows))) == ["twice", "y"]


@pytest.mark.parametrize("other", ["./words.txt", "words.txt/more"])
def test_assets_have_a_place_each(make, tmp_path, other):
    path = tmp_path / "words.txt"
    path.write_text("a")
    estimator = make(line).train(rows, max_steps=1)
    assets = {"words.txt": path, other: path}
    with pytest.raises(ValueError, match="have the same path: give each a name of its own") as caught:
        estimator.export_saved_model(tmp_path / "exports", assets_extra=assets)
    assert len(caught.value.faults) == 1


def test_an_export_output_has_a_row_for_each_row(make, writer, tmp_path):
    def model_fn(features, labels, mode):
        spec = line(features, labels, mode)
        if mode != "infer":
            return spec
        return EstimatorSpec(mode, spec.predictions, export_outputs={"y": export.PredictOutput(np.ones(7))})

    estimator = make(model_fn).train(rows, max_steps=1)
    with pytest.raises(
        ModelFnError, match=r"\['y'\] has 'output' of shape \[7\] for \d+ rows: expected one row for each"
    ):
        estimator.export_saved_model(tmp_path / "exports", writer=writer)
