"""Exports of old checkpoints: each once, and the best one chosen anew."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient

from psflow.flows.cli import run
from psflow.flows.export import export
from psflow.flows.parameters.configuration import PipelineParameters
from psflow.flows.parameters.stages import ExportParameters
from psflow.flows.replay.export_plan import check_without_training, plan_export
from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.best import BestRecord
from psflow.ps_runtime.model.export.directory import ExportDirectory
from psflow.tasks.exports.exported import moved_best
from tests.flows.replay.conftest import CONFIG

pytestmark = pytest.mark.process

AUC = {0: 0.5, 2: 0.9, 4: 0.7, 6: 0.9}


def make(trained: Path, **values: Any) -> dict[str, Any]:
    return export(ExportParameters.model_validate({"model_dir": str(trained), **values}))


def versions(trained: Path) -> tuple[int, str | None]:
    """Return how many versions are registered, and which of them is the best one."""
    client = MlflowClient(f"sqlite:///{trained.parent}/mlflow.db")
    found = client.search_model_versions("name = 'psflow-line'")
    best = client.get_registered_model("psflow-line").aliases.get("best")
    return len(found), None if best is None else str(best)


def evaluated(trained: Path, auc: Mapping[int, float] = AUC) -> None:
    log, saved_at = EvaluationLog(str(trained)), CheckpointStore(str(trained)).saved_at()
    for step, value in auc.items():
        log.append(EvaluationRecord("", step, saved_at[step], {"loss": 1 - value, "auc": value}, 1.0))


@pytest.mark.usefixtures("prefect_named")
def test_a_checkpoint_is_exported_once(trained: Path) -> None:
    first = make(trained, checkpoint="latest")
    again = make(trained, checkpoint="6")
    assert (first["step"], first["is_new"], again["is_new"]) == (6, True, False)
    assert first["model_uri"] == again["model_uri"] == "models:/psflow-line/1"
    assert versions(trained) == (1, None)
    model = mlflow.pyfunc.load_model(first["path"])
    assert set(model.predict({"x": np.float32([1.0])})) == {"y"}


@pytest.mark.usefixtures("prefect_named")
def test_the_best_one_is_chosen_anew_and_moved(trained: Path) -> None:
    evaluated(trained)

    def chosen(mode: str) -> tuple[int, str, bool]:
        facts = make(trained, metric="auc", mode=mode)
        record = BestRecord.read(str(trained / "export" / "best"))
        assert record is not None
        assert (record.step, record.path) == (facts["step"], facts["path"])
        assert versions(trained)[1] == facts["version"]
        return facts["step"], facts["version"], facts["is_new"]

    assert chosen("max") == (2, "1", True)  # of equals the older one
    assert chosen("min") == (0, "2", True)
    assert chosen("max") == (2, "1", False)
    assert versions(trained)[0] == 2
    assert make(trained)["step"] == 2  # the best one, as it is

    shutil.rmtree(trained / "checkpoints" / "step_00000002")
    assert chosen("max") == (2, "1", False)  # its export is there
    shutil.rmtree(trained / "export" / "best" / "1")
    facts = make(trained, metric="auc", mode="max")
    assert (facts["step"], facts["passed_over"]) == (6, [])  # as good


@pytest.mark.usefixtures("prefect_named")
def test_a_person_takes_the_alias_from_a_better_training_and_a_pipeline_does_not(trained: Path) -> None:
    evaluated(trained)
    make(trained, metric="auc", mode="max")
    client = MlflowClient(f"sqlite:///{trained.parent}/mlflow.db")
    run_id = client.create_run("0").info.run_id
    theirs = client.create_model_version("psflow-line", "there", run_id, tags={"eval.loss": "0.01"})
    client.set_registered_model_alias("psflow-line", "best", theirs.version)

    assert make(trained, takes_alias=False)["alias"] is None
    assert versions(trained) == (2, "2")
    assert make(trained)["alias"] == "best"
    assert versions(trained) == (2, "1")


@pytest.mark.usefixtures("prefect_named")
def test_a_better_one_that_is_gone_is_reported(trained: Path) -> None:
    evaluated(trained, AUC | {2: 0.95})
    shutil.rmtree(trained / "checkpoints" / "step_00000002")
    facts = make(trained, metric="auc", mode="max")
    assert (facts["step"], facts["passed_over"]) == (6, [2])


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ({"stages": ["export"]}, "has no best checkpoint, as no evaluation with finite metrics was exported"),
        (
            {"stages": ["evaluate", "export"], "export": {"metric": "nosuch", "mode": "min"}},
            "pipeline.export.metric: the evaluation has loss, but no metric 'nosuch'",
        ),
        ({"stages": ["evaluate"], "evaluate": {"checkpoints": "5"}}, "has none of step 5, the nearest is 4"),
    ],
)
def test_a_pipeline_without_training_knows_what_it_can_do(trained: Path, stages: dict[str, Any], words: str) -> None:
    asked = {**CONFIG, "model_dir": str(trained), "pipeline": stages}
    with pytest.raises(UsageError, match=words):
        check_without_training(PipelineParameters.model_validate(asked))


def test_a_metric_that_is_never_finite_chooses_nothing(trained: Path) -> None:
    evaluated(trained, dict.fromkeys(AUC, float("nan")))
    parameters = ExportParameters.model_validate({"model_dir": str(trained), "metric": "auc", "mode": "max"})
    words = (
        r"has none with a finite result of evaluation 'eval' \(at step 6 auc is nan, loss is nan\); correct the data"
    )
    with pytest.raises(UsageError, match=words):
        plan_export(parameters)


def test_the_best_one_stays_where_the_alias_cannot_be_moved(tmp_path: Path) -> None:
    with ExportDirectory.opened(str(tmp_path)) as directory:
        new = BestRecord(4, {"loss": 0.5}, 2, directory.version_path(2))
        for before in (None, BestRecord(2, {"loss": 1.0}, 1, directory.version_path(1))):
            if before is not None:
                before.write(directory.path)
            with pytest.raises(KeyboardInterrupt), moved_best(directory, new):
                raise KeyboardInterrupt
            assert BestRecord.read(directory.path) == before
        with moved_best(directory, new):
            pass
        assert BestRecord.read(directory.path) == new


def test_a_best_one_that_an_evaluator_chooses_meanwhile_is_neither_overwritten_nor_taken_back(tmp_path: Path) -> None:
    with ExportDirectory.opened(f"memory://{tmp_path.name}/best") as directory:
        old, new, newer = (BestRecord(n, {"loss": 1 / n}, n, directory.version_path(n)) for n in (1, 2, 3))
        old.write(directory.path)

        def overtaken() -> None:
            with moved_best(directory, new):
                newer.write(directory.path)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            overtaken()
        assert BestRecord.read(directory.path) == newer
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BestRecord, "read", lambda path: old)  # as it was a moment ago
            with pytest.raises(UsageError, match="another export has become the best one meanwhile"):
                moved_best(directory, new).__enter__()
        assert BestRecord.read(directory.path) == newer


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--metric", "auc"], "expected both metric and mode (min or max), or neither"),
        (
            ["--metric", "auc", "--mode", "maxi"],
            "--mode: expected 'min' or 'max', got 'maxi'; did you mean 'max'?",
        ),
        (
            ["--metric", "acu", "--mode", "max"],
            "--metric: the evaluation has auc, loss, but no metric 'acu'; did you mean 'auc'?",
        ),
        (["--checkpoint", "4", "--metric", "auc", "--mode", "max"], "expected checkpoint 'best', got '4'"),
        (["--checkpoint", "all"], "--checkpoint: expected best, latest, or a step such as 600; got 'all'"),
        (["--checkpoint", "5"], "no such checkpoint: {} has none of step 5, the nearest is 4; there are 0, 2, 4, 6"),
        ([], "no such checkpoint: {} has no best checkpoint"),
        (
            ["--metric", "auc", "--mode", "max", "eval.name=x"],
            "no such checkpoint: {} has none with an evaluation 'x'",
        ),
    ],
)
def test_what_cannot_be_exported_is_reported(
    trained: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated(trained)
    assert run(["export", "--model-dir", str(trained), *arguments]) == 2
    assert words.format(trained) in capsys.readouterr().err
    assert not (trained / "export").exists()
