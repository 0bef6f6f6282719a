"""Directories in which a job may start: local ones or URLs, without remains of another job."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.records import (
    WaitingMetrics,
    WaitingNotes,
    write_waiting_metrics,
    write_waiting_notes,
)
from psflow.ps_runtime.errors import CheckpointError, ModelDirError, PsflowError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.local import run_local
from psflow.ps_runtime.estimator.model_dir import check_model_dir
from psflow.ps_runtime.model.export.directory import is_exported
from psflow.ps_runtime.model.export.exporters import BestExporter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from tests.ps_runtime.estimator.regression import records, regression, shuffled, steps_of


class Nothing:
    """Writes an export of no content."""

    def write(self, directory, bundle):
        Path(directory).mkdir(exist_ok=True)


def spec(exporters=()):
    return EvalSpec(records, None, exporters=exporters, start_delay_secs=0, throttle_secs=0)


def train(estimator, exporters=()):
    with Attempt(estimator, TrainSpec(shuffled, 6), spec(exporters)) as attempt:
        run_local(attempt.job(Nothing()), lambda event: None, attempt.check)


def test_results_without_checkpoints_are_refused_each_by_its_name(make):
    estimator = make()
    train(estimator, BestExporter())
    shutil.rmtree(Path(estimator.model_dir, "checkpoints"))
    words = r"model has no readable checkpoint, but .*: evaluations\.jsonl, export/best/best\.json, job\.json; remove"
    with pytest.raises(ModelDirError, match=words):
        train(make(), BestExporter())
    for name in ("evaluations.jsonl", "export/best/best.json", "job.json"):
        Path(estimator.model_dir, name).unlink()
    train(make(), BestExporter())
    assert steps_of(estimator.model_dir) == [0, 5, 6]


def test_one_result_is_enough(make):
    estimator = make()
    train(estimator)
    shutil.rmtree(Path(estimator.model_dir, "checkpoints"))
    with pytest.raises(ModelDirError, match=r"training: evaluations\.jsonl, job\.json; remove"):
        estimator.train(shuffled, max_steps=3)


def test_a_job_that_ended_before_its_first_checkpoint_may_begin_again(make):
    estimator = make()
    with Attempt(estimator, TrainSpec(shuffled, 6), None):
        pass
    assert Path(estimator.model_dir, "job.json").exists()
    train(estimator)
    assert steps_of(estimator.model_dir) == [0, 5, 6]


@pytest.mark.parametrize("scheme", ["file", "local"])
def test_a_local_url_is_a_path(tmp_path, scheme):
    estimator = Estimator(regression, f"{scheme}://{tmp_path}/model")
    assert estimator.model_dir == estimator.config.model_dir == f"{tmp_path}/model"
    train(estimator, BestExporter())
    assert Path(tmp_path, "model/export/best/best.json").exists()


@pytest.mark.parametrize("below", ["", "/deeper/still"])
def test_a_file_is_no_model_dir(tmp_path, below):
    Path(tmp_path, "file").touch()
    words = rf"^model_dir {tmp_path}/file{below}: expected a directory, but {tmp_path}/file is a file; choose another$"
    with pytest.raises(UsageError, match=words):
        train(Estimator(regression, f"{tmp_path}/file{below}"))


def test_where_nothing_can_be_written_no_training_begins():
    words = r"^model_dir /proc/m/n: /proc is not writable: .*; correct its permissions, or choose another$"
    with pytest.raises(UsageError, match=words):
        train(Estimator(regression, "/proc/m/n"))


def test_what_is_looked_at_stays_as_it_is(make):
    estimator = make()
    os.makedirs(estimator.model_dir)
    before = os.stat(estimator.model_dir).st_mtime_ns
    Attempt(estimator, TrainSpec(shuffled, 6), spec())
    assert os.listdir(estimator.model_dir) == []
    assert os.stat(estimator.model_dir).st_mtime_ns == before


@pytest.mark.parametrize("protocol", ["nosuchstore", "gs", "http"])
def test_a_url_where_two_processes_could_write_is_refused_before_its_store_is_asked(protocol):
    words = (
        rf"model_dir {protocol}://bucket/m: a job is written to a local directory or to s3://, got {protocol}://; use"
    )
    with pytest.raises(UsageError, match=words):
        train(Estimator(regression, f"{protocol}://bucket/m"), BestExporter())


@pytest.mark.parametrize("exporters", [(), BestExporter()])
def test_a_url_will_do(exporters):
    estimator = Estimator(regression, f"memory://{uuid.uuid4().hex}/model")
    train(estimator, exporters)
    assert steps_of(estimator.model_dir)[-1] == 6
    best = BestExporter().best(estimator.model_dir)
    assert (best is not None and is_exported(best.path)) == bool(exporters)


def test_a_damaged_latest_checkpoint_is_told_before_anything_starts(make):
    estimator = make()
    train(estimator)
    shard = next(Path(estimator.latest_checkpoint()).glob("shard_*"))
    size = shard.stat().st_size
    os.truncate(shard, 100)
    words = (
        rf"^the latest checkpoint, .*/step_00000006, is damaged: {shard.name} has 100 bytes, expected {size} bytes; "
        r"restore its files, or remove that directory to resume from step 5$"
    )
    with pytest.raises(ModelDirError, match=words):
        train(make())
    shard.unlink()
    with pytest.raises(ModelDirError, match=rf"{shard.name} is missing, expected {size} bytes"):
        train(make())
    shutil.rmtree(shard.parent)
    train(make())
    assert steps_of(estimator.model_dir) == [0, 5, 6]


def test_a_damaged_only_checkpoint_has_none_before_it(make):
    estimator = make(save_checkpoints_secs=600)
    train(estimator)
    for step in steps_of(estimator.model_dir)[:-1]:
        shutil.rmtree(Path(estimator.model_dir, f"checkpoints/step_{step:08d}"))
    os.truncate(next(Path(estimator.latest_checkpoint()).glob("shard_*")), 100)
    with pytest.raises(ModelDirError, match=r"is damaged: .*; restore its files, or choose another model_dir$"):
        train(make())


@pytest.mark.parametrize("step", [5, 6])
@pytest.mark.parametrize("damage", [b"", b'{"body": {}}'])
def test_a_damaged_manifest_is_told_before_anything_starts_and_nothing_is_lost(make, step, damage):
    estimator = make()
    train(estimator)
    manifest = Path(estimator.model_dir, f"checkpoints/step_{step:08d}/manifest.json")
    manifest.write_bytes(damage)
    before = files_of(estimator.model_dir)
    for start in (lambda: train(make()), lambda: make().train(shuffled, steps=1), lambda: make().evaluate(records)):
        with pytest.raises(
            CheckpointError, match=rf"{manifest}: .*; restore manifest\.json, or remove this checkpoint's"
        ):
            start()
    assert files_of(estimator.model_dir) == before


def test_where_all_manifests_are_damaged_training_does_not_begin_again(make):
    estimator = make()
    train(estimator)
    for manifest in Path(estimator.model_dir).glob("checkpoints/*/manifest.json"):
        manifest.write_bytes(b"")
    Path(estimator.model_dir, "evaluations.jsonl").unlink()
    with pytest.raises(CheckpointError, match=r"step_0000000\d/manifest.json: "):
        train(make())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("job.json", r"job\.json: damaged"),
        ("finished.json", r"finished\.json: damaged"),
        ("evaluations.jsonl", r"evaluations\.jsonl: line 2 is damaged"),
        ("waiting_metrics.jsonl", r"waiting_metrics\.jsonl: line 2 is damaged"),
        ("waiting_notes.json", r"waiting_notes\.json: damaged"),
        ("export/best/best.json", r"best\.json: damaged"),
    ],
)
def test_a_damaged_record_is_told_before_anything_starts(make, name, words):
    estimator = make()
    train(estimator, BestExporter())
    write_waiting_metrics(estimator.model_dir, [WaitingMetrics("a", 6, 1.0, {"loss": 0.5})])
    write_waiting_notes(estimator.model_dir, WaitingNotes("a", {}, {}))
    file = Path(estimator.model_dir, name)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:1], b"[]\n", *lines[1:]]) if name.endswith("l") else b"[]")
    before = files_of(estimator.model_dir)
    with pytest.raises(CheckpointError, match=words):
        train(make(), BestExporter())
    assert files_of(estimator.model_dir) == before


def test_a_file_beside_the_exporters_is_none(make):
    estimator = make()
    train(estimator)
    notes = Path(estimator.model_dir, "export/notes.txt")
    notes.parent.mkdir(exist_ok=True)
    notes.touch()
    train(make())


def files_of(model_dir):
    """Return all files of a model_dir, and what they hold."""
    return {path: path.read_bytes() for path in Path(model_dir).rglob("*") if path.is_file()}


def test_each_flipped_bit_of_a_model_dir_is_harmless_or_told_with_its_file(make):
    estimator = make()
    train(estimator, BestExporter())
    model = Attempt(estimator, TrainSpec(shuffled, 6), spec()).plan.model
    step = f"checkpoints/step_{6:08d}"
    shard = next(Path(estimator.model_dir, step).glob("shard_*")).name
    names = ["job.json", "finished.json", "evaluations.jsonl", "export/best/best.json", f"{step}/manifest.json"]
    rng = np.random.default_rng(11)
    told = []
    for name in [*names, f"{step}/{shard}"]:
        file = Path(estimator.model_dir, name)
        intact = file.read_bytes()
        for place in rng.integers(0, len(intact), 30):
            file.write_bytes(intact[:place] + bytes([intact[place] ^ (1 << rng.integers(8))]) + intact[place + 1 :])
            error = ""
            try:
                check_model_dir(estimator.model_dir, model)
                JobFile(estimator.model_dir).refusal()
                JobFile(estimator.model_dir).check_place()
                estimator.get_variable_value("w")
            except PsflowError as found:
                error = str(found)
            assert not error or str(file) in error, (name, place)
            told.append((name, bool(error)))
        file.write_bytes(intact)
    assert all(is_told for name, is_told in told if name.startswith(step))
    assert sum(is_told for _, is_told in told) > 75
