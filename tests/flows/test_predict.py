from __future__ import annotations

import json
import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest

from psflow.flows import invocation
from psflow.flows import predict as flows_predict
from psflow.flows.parameters.stages import PredictParameters
from psflow.flows.predict import dry_run, predict, prepared
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.config.environment import environment
from psflow.ps_runtime.data.digits import read_digits
from psflow.ps_runtime.errors import InputError, ModelFnError, UsageError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.dnn import dnn_model
from psflow.ps_runtime.model.export.bundle import ExportBundle
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.roles.events import Export
from psflow.tasks.exports.writer import MlflowModelWriter
from psflow.tasks.prediction import partitions
from psflow.tasks.prediction.folder import PredictionFolder
from psflow.tasks.prediction.part_facts import PartFacts, all_not_finite
from psflow.tasks.prediction.plan import PredictionPlan, plan_prediction
from psflow.tasks.prediction.worker import predict_partition
from psflow.tasks.tracking.store import prepare_store
from psflow.tasks.tracking.tracker import Tracker
from tests.new_databases import copy_store
from tests.s3_server import running_s3

pytestmark = pytest.mark.process


PARAMS = {"hidden_units": (8,), "activation_fn": "relu", "dropout": None, "head": ClassifierSpec(10)}


def export(path: Path) -> Any:
    """Write an untrained classifier of digits, and return what it was made of."""
    digits = read_digits("test")
    rows = {"features": digits.features["features"][:3]}
    caller = ModelCaller(dnn_model, PARAMS, None, digits.schema())
    values = ModelValues(caller.build(rows, None, ModeKeys.PREDICT, seed=3).initial_values)
    bundle = ExportBundle(
        name="model",
        global_step=40,
        values=values,
        model_fn=dnn_model,
        params=PARAMS,
        features=rows,
        predictions=caller.apply(rows, None, ModeKeys.PREDICT, values, 40).predictions,
        metrics={},
        saved_at=0.5,
        schema=digits.schema(),
    )
    MlflowModelWriter().write(str(path), bundle)
    expected = caller.apply(digits.features, None, ModeKeys.PREDICT, values, 40).predictions
    return SimpleNamespace(path=str(path), class_ids=expected["class_ids"], probabilities=expected["probabilities"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return export(tmp_path_factory.mktemp("export") / "model")


@pytest.fixture
def table(tmp_path: Path) -> str:
    """All digits of the test part as CSV, as stored, the label among the columns, in another order."""
    digits = read_digits("test", (0, 16))
    matrix = np.column_stack([digits.labels, digits.features["features"][:, ::-1]])
    path = tmp_path / "digits.csv"
    header = ",".join(["label", *reversed(digits.columns)])
    np.savetxt(path, matrix, fmt="%.9g", delimiter=",", header=header, comments="")
    return str(path)


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", copy_store(tmp_path))


def read_parts(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pd.read_parquet(folder).to_dict("records")
    return rows


def agrees(rows: list[dict[str, str]], model: Any) -> None:
    np.testing.assert_array_equal([row["class_ids"] for row in rows], model.class_ids[:, 0])
    got = np.stack([row["probabilities"] for row in rows])
    np.testing.assert_allclose(got, model.probabilities, rtol=1e-5)


def computed(plan: PredictionPlan) -> list[PartFacts]:
    """Predict all partitions of a plan in this process, in another order."""
    plan.begin()
    for part in reversed(plan.parts):
        predict_partition(plan.work, part)
    return plan.complete()


def test_partitions_are_the_whole(model: Any, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "PARTITION_BYTES", 64 * 4 * 100)
    parameters = PredictParameters(model=model.path, input=table, output=str(tmp_path / "out"))
    with prepared(parameters) as found:
        [plan] = found.plans
        assert [part.rows for part in computed(plan)] == [90, 90, 90, 90]
    agrees(read_parts(tmp_path / "out"), model)


def test_input_and_output_may_be_on_s3(model: Any, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "PARTITION_BYTES", 64 * 4 * 100)
    switches = tmp_path / "switches"
    switches.mkdir()
    with running_s3(switches) as server, environment(server.environment):
        s3 = fsspec.filesystem("s3")
        s3.put_file(table, "bucket/data/digits.csv")
        parameters = PredictParameters(model=model.path, input="s3://bucket/data/*.csv", output="s3://bucket/out")
        with prepared(parameters) as found:
            [plan] = found.plans
            plan.begin()
            predict_partition(plan.work, plan.parts[2])
        with prepared(parameters) as found, PredictionFolder("s3://bucket/out").claim():  # the same command, later
            with (
                pytest.raises(UsageError, match="the output s3://bucket/out is being written by process"),
                PredictionFolder("s3://bucket/out").claim(),
            ):
                pass
            [plan] = found.plans
            assert [part.rows for part in computed(plan)] == [90, 90, 90, 90]
        nothing = PredictParameters(model="s3://bucket/no/1", input=table, output=str(tmp_path / "no"))
        with pytest.raises(UsageError, match=r"^there is no complete export in s3://bucket/no/1; name a version"):
            prepared(nothing).__enter__()
        s3.get("bucket/out/part-*", f"{tmp_path}/out/")
        assert s3.exists("bucket/out/_SUCCESS")
        s3.clear_instance_cache()
    agrees(read_parts(tmp_path / "out"), model)


@pytest.mark.cluster(shared=True)
@pytest.mark.usefixtures("prefect_named")
def test_registered_model_predicts_on_a_cluster(model: Any, table: str, tmp_path: Path) -> None:
    tracker = Tracker.open(prepare_store(), experiment="digits", run_name="r", registered_model="psflow-digits")
    tracker.register(Export("best", 40, 1, model.path, True, {}))
    assert tracker.close(), tracker.statistics()
    parameters = PredictParameters(model="models:/psflow-digits@best", input=table, output=str(tmp_path / "out"))
    result = predict(parameters)
    assert result["wall_secs"] > 0
    assert {key: value for key, value in result.items() if key != "wall_secs"} == {
        "rows": 360,
        "rejects": 0,
        "non_finite": {"rows": 0, "columns": {}},
        "invalid": {"rows": 0, "columns": {}},
        "parts": 1,
        "output": str(tmp_path / "out"),
        "folders": [str(tmp_path / "out")],
        "model_uri": "models:/psflow-digits@best",
        "model_version": "1",
        "global_step": 40,
    }
    agrees(read_parts(tmp_path / "out"), model)


def test_a_dry_run_shows_what_would_be_done_and_writes_nothing(model: Any, table: str, tmp_path: Path) -> None:
    asked = {"model": model.path, "input": table, "output": str(tmp_path / "out"), "predict_keys": ["class_ids"]}
    [facts] = dry_run(PredictParameters.model_validate(asked))["predictions"]
    told = {name: facts[name] for name in ("rows", "parts", "finished_parts", "columns", "unused", "invalid")}
    assert told == {
        "rows": 360,
        "parts": 1,
        "finished_parts": 0,
        "columns": {"class_ids": "int64"},
        "unused": ["label"],
        "invalid": "error",
    }
    assert not (tmp_path / "out").exists()
    of_one = PredictParameters.model_validate({**asked, "predict_keys": "class_ids"})
    assert of_one == PredictParameters.model_validate(asked)
    words = "predict_keys names 'class_id': the model predicts .*; did you mean 'class_ids'"
    with pytest.raises(UsageError, match=words):
        dry_run(PredictParameters.model_validate({**asked, "predict_keys": ["class_id"]}))
    with prepared(PredictParameters.model_validate(asked)) as found:
        computed(found.plans[0])
        assert dry_run(PredictParameters.model_validate(asked))["predictions"][0]["finished_parts"] == 1


def test_the_loser_of_a_race_for_an_output_is_refused_before_its_flow_begins(
    model: Any, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    winner = PredictionFolder(str(tmp_path / "out")).claim()

    def planned(*arguments: Any) -> PredictionPlan:
        """Let another command take the output, once this one has found it free."""
        plan = plan_prediction(*arguments)
        winner.__enter__()
        return plan

    monkeypatch.setattr(flows_predict, "plan_prediction", planned)
    monkeypatch.setattr(invocation, "head_start", lambda: nullcontext(SimpleNamespace(server=None)))
    monkeypatch.setattr(invocation, "prefect_api", lambda server: pytest.fail("the flow begins"))
    cluster = {"address": "tls://127.0.0.1:1"}  # nothing is started for one of others
    asked = {"model": model.path, "input": table, "output": str(tmp_path / "out"), "cluster": cluster}
    words = rf"the output {tmp_path}/out is being written by {ProcessId.current()} since 20.* UTC; wait for its end"
    try:
        with pytest.raises(UsageError, match=words):
            predict(PredictParameters.model_validate(asked))
    finally:
        winner.__exit__(None, None, None)
    assert not PredictionFolder(str(tmp_path / "out")).record()


def test_rows_with_a_missing_value_of_which_nothing_is_predicted_are_refused_or_rejected(
    model: Any, table: str, tmp_path: Path
) -> None:
    lines = Path(table).read_text().splitlines()
    cells = lines[2].split(",")
    lines[2] = ",".join([cells[0], "", "inf", *cells[3:]])
    Path(table).write_text("\n".join(lines))
    asked = {"model": model.path, "input": table, "output": str(tmp_path / "out")}
    with (
        prepared(PredictParameters(**asked)) as found,
        pytest.raises(
            ModelFnError, match=r"digits\.csv, row 3 .*: the model predicted NaN as 'logits', 'probabilities'"
        ),
    ):
        computed(found.plans[0])
    with prepared(PredictParameters(**asked, on_error="reject")) as found:
        [facts] = computed(found.plans[0])
    assert (facts.rows, facts.rejects) == (359, 1)
    assert all_not_finite([facts]) == {"rows": 0, "columns": {}}
    assert len(read_parts(tmp_path / "out")) == 359
    words = r"digits\.csv: column 'pixel_7_6' has 1 cell that is missing, NaN or infinite, the first in row 3"
    with pytest.raises(InputError, match=words), prepared(PredictParameters(**asked, non_finite="error")):
        pass


def test_no_such_model(table: str, tmp_path: Path) -> None:
    parameters = PredictParameters(model="models:/nosuch@best", input=table, output=str(tmp_path / "out"))
    with pytest.raises(UsageError, match=r"no model models:/nosuch@best in sqlite"), prepared(parameters):
        pass


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("/nonexistent", "^there is no folder /nonexistent; expected a model such as models:/"),
        ("~garbage", r"^there is no folder "),
        ("models:garbage", r"^no model models:garbage in sqlite:"),
        ("nosuch://bob:s3cret@x", r"^no model nosuch://x in sqlite:"),
    ],
)
def test_garbage_for_a_model(uri: str, words: str, table: str, tmp_path: Path) -> None:
    parameters = PredictParameters(model=uri, input=table, output=str(tmp_path / "out"))
    with pytest.raises(UsageError, match=words) as caught, prepared(parameters):
        pass
    assert "s3cret" not in str(caught.value)


def test_package_that_a_model_needs_is_named(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud", None)
    parameters = PredictParameters(model="gs://bucket/model", input=table, output=str(tmp_path / "out"))
    with pytest.raises(UsageError, match=r"needs the package google, which is not installed"), prepared(parameters):
        pass


def test_input_is_missed_before_the_model_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none.db")
    parameters = PredictParameters(model="models:/no@best", input=str(tmp_path / "no.csv"), output=str(tmp_path))
    with pytest.raises(InputError, match=r"there is no file .*no\.csv"), prepared(parameters):
        pass
    assert not (tmp_path / "none.db").exists()


def test_folder_that_is_no_model(table: str, tmp_path: Path) -> None:
    parameters = PredictParameters(model=str(tmp_path), input=table, output=str(tmp_path / "out"))
    with pytest.raises(UsageError, match="is not a model that psflow exported"), prepared(parameters):
        pass


def test_a_model_of_another_format_is_refused(model: Any, table: str, tmp_path: Path) -> None:
    older = shutil.copytree(model.path, tmp_path / "older")
    config = older / "artifacts" / "model" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "format": 10}))
    parameters = PredictParameters(model=str(older), input=table, output=str(tmp_path / "out"))
    with (
        pytest.raises(UsageError, match=r"older has export format 10, expected 11; predict with"),
        prepared(parameters),
    ):
        pass


def test_no_such_input(model: Any, tmp_path: Path) -> None:
    parameters = PredictParameters(model=model.path, input=str(tmp_path / "no.csv"), output=str(tmp_path / "out"))
    with pytest.raises(InputError, match=r"there is no file .*no\.csv"), prepared(parameters):
        pass


def test_output_that_is_not_empty(model: Any, table: str, tmp_path: Path) -> None:
    parameters = PredictParameters(model=model.path, input=table, output=str(tmp_path))
    with pytest.raises(UsageError, match="holds other files"), prepared(parameters):
        pass


def test_model_that_a_worker_cannot_read(model: Any, table: str, tmp_path: Path) -> None:
    parameters = PredictParameters(model=model.path, input=table, output=str(tmp_path / "out"))
    words = f"cannot read the folder /nowhere of the model {model.path}"
    with prepared(parameters) as found:
        [plan] = found.plans
        with pytest.raises(InputError, match=words):
            predict_partition(replace(plan.work, model_path="/nowhere"), plan.parts[0])


def test_worker_does_not_need_prefect() -> None:
    import subprocess

    program = (
        "import sys, psflow.tasks.prediction.worker; sys.exit('prefect' in sys.modules or 'mlflow' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=root).returncode == 0
