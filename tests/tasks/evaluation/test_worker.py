"""A worker of a replay reads tabular files by the scan of the flow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from psflow import EvalSpec, LinearClassifier, RunConfig, TrainSpec
from psflow.ps_runtime.data import record_input
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.local import run_local
from psflow.ps_runtime.model.evaluation import input_digest
from psflow.tasks.evaluation.worker import EvaluationJob, Failure, _Opened


def test_a_worker_scans_nothing_and_refuses_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,label\n" + "1,0\n2,1\n" * 9)

    def records() -> Any:
        return Csv(path=str(path), label="label").read().batch(6)

    config = RunConfig(str(tmp_path / "m"), tf_random_seed=1, save_checkpoints_steps=1)
    estimator, spec = LinearClassifier(n_classes=2, config=config), EvalSpec(records, None)
    with Attempt(estimator, TrainSpec(records, 2), None) as attempt:
        run_local(attempt.job(), lambda event: None, attempt.check)
        opened = attempt.plan.datasets["train"]
    assert isinstance(opened, RecordDataset)
    job = EvaluationJob(
        estimator.model_dir,
        estimator.caller.model_fn,
        estimator.caller.params,
        config,
        (spec,),
        (input_digest(opened, None),),
        (opened.scanned.to_bytes(),),
        attempt.plan.model.schema,
    )
    monkeypatch.setattr(record_input, "scan_input", lambda *given, **options: pytest.fail("the input was scanned"))
    [outcome] = _Opened(cloudpickle.dumps(job)).evaluate(2, [0], lambda: None)
    assert not isinstance(outcome, Failure)
    assert outcome.input_digest == job.digests[0]
    path.write_text("x,label\n1,0\n")
    [outcome] = _Opened(cloudpickle.dumps(job)).evaluate(2, [0], lambda: None)
    assert isinstance(outcome, Failure)
    assert f"{path} has changed since it was scanned: its size was 80, now 12 bytes" in outcome.reason
    [outcome] = _Opened(cloudpickle.dumps(replace(job, scans=(None,)))).evaluate(2, [0], lambda: None)
    assert isinstance(outcome, Failure)
    assert outcome.reason == "the scan of the input is missing, although the flow wrote it; run the command again"
