"""Files of trainings: sizes and removal, with real MLflow stores."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.model.best import BestRecord
from psflow.tasks.cleaning import (
    DeletedRuns,
    Held,
    Recorded,
    found_model_dirs,
    held,
    model_dirs,
    recorded,
    remove_deleted_runs,
    size_text,
)
from psflow.tasks.connectivity import run_fault
from psflow.tasks.tracking.models import PATH
from tests.new_databases import copy_store

NOTHING = Recorded({}, DeletedRuns(), {})
"""What a store without anything needs."""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def job(directory: Path) -> JobFile:
    """A model_dir with a checkpoint, and with exports 1 to 4 of which 2 is the best."""
    job = JobFile("runs/digits")
    job.claim()
    exporter = directory / "runs/digits/export/best"
    for version in range(1, 5):
        (exporter / str(version)).mkdir(parents=True)
        (exporter / str(version) / "weights").write_bytes(b"w" * 1000)
    BestRecord(200, {"loss": 0.1}, 2, str(exporter / "2")).write(str(exporter))
    checkpoint = directory / "runs/digits/checkpoints/step_00000200"
    checkpoint.mkdir(parents=True)
    (checkpoint / "shard").write_bytes(b"s" * 500)
    job.release()
    return job


def named(client: MlflowClient, run_id: str, path: str) -> None:
    """Register an export as psflow does, and give it an alias."""
    client.create_registered_model("digits")
    version = client.create_model_version("digits", source=path, run_id=run_id, tags={PATH: os.path.abspath(path)})
    client.set_registered_model_alias("digits", "champion", version.version)


def old(exports: dict[str, str] | None = None) -> list[str]:
    return [export.path for one in model_dirs(replace(NOTHING, exports=exports or {})) for export in one.old_exports]


def test_sizes_are_those_of_all_files(job: JobFile, directory: Path) -> None:
    store = copy_store(directory)
    (directory / "mlartifacts/1").mkdir(parents=True)
    (directory / "mlartifacts/1/plot").write_bytes(b"p" * 70)
    (directory / "mlartifacts/2").symlink_to(directory)  # what it leads to is elsewhere
    sizes = {one.path: one.num_bytes for one in held(store)}
    assert sizes.keys() == {"runs", "mlflow.db", "mlartifacts"}
    assert sizes["mlflow.db"] == (directory / "mlflow.db").stat().st_size
    assert 70 < sizes["mlartifacts"] < 400
    (found,) = model_dirs(NOTHING)
    assert found.parts[0] == Held("runs/digits/checkpoints", 500)
    assert found.parts[1].num_bytes > 4000
    assert sizes["runs"] == found.parts[2].num_bytes
    assert str(found.parts[0]) == "runs/digits/checkpoints: 500 bytes"
    assert size_text(3_100_000) == "3.1 MB"


def test_model_dirs_are_found_where_schedules_and_teams_put_them(job: JobFile, directory: Path) -> None:
    wanted = ["runs/digits", "runs/nightly/20261121T020000Z", "runs/nightly/20261122T020000Z", "runs/team/digits/1"]
    others = ["runs/a/b/c/d", "runs/digits/export/best/4", "elsewhere/digits", "runs/nightly/folder/job.json"]
    for path in (*wanted, *others):
        Path(path).mkdir(parents=True, exist_ok=True)
        if not path.endswith("job.json"):
            Path(path, "job.json").write_text("{}")
    (directory / "runs/link").symlink_to(directory / "elsewhere")
    (directory / "runs/nightly/disk").symlink_to(directory / "elsewhere/digits")
    (directory / "runs/nightly/latest").symlink_to("20261122T020000Z")
    (directory / "runs/nightly/round").symlink_to(directory / "runs")
    assert found_model_dirs() == sorted([*wanted, "runs/nightly/disk"])


def test_where_nothing_was_trained_no_model_dir_is_found() -> None:
    assert found_model_dirs() == []


def test_old_exports_of_a_schedule_may_go(job: JobFile, directory: Path) -> None:
    (directory / "runs/nightly").mkdir()
    (directory / "runs/digits").rename(directory / "runs/nightly/20261121T020000Z")
    (found,) = model_dirs(NOTHING)
    exporter = "runs/nightly/20261121T020000Z/export/best"
    assert [export.path for export in found.old_exports] == [f"{exporter}/{n}" for n in (1, 3)]
    assert found.remove_old() == []
    assert sorted(name for name in os.listdir(exporter) if name[0] != ".") == ["2", "4", "best.json"]


def test_the_best_and_the_newest_export_stay(job: JobFile) -> None:
    (found,) = model_dirs(NOTHING)
    assert [export.path for export in found.old_exports] == [f"runs/digits/export/best/{n}" for n in (1, 3)]
    assert found.remove_old() == []
    assert sorted(name for name in os.listdir("runs/digits/export/best") if name[0] != ".") == ["2", "4", "best.json"]
    assert os.listdir("runs/digits/checkpoints") == ["step_00000200"]
    assert job.refusal() is None


def test_only_versions_are_exports_and_what_links_name_stays(job: JobFile, directory: Path) -> None:
    exporter = directory / "runs/digits/export/best"
    for name in ("007", "0", "\u00b2", "\u0663"):  # the last two are digits of other scripts
        (exporter / name).mkdir()
    (exporter / "5").symlink_to("3")
    (exporter / "6").write_text("a note")
    (directory / "runs/digits/export/notes").write_text("another")
    assert old() == ["runs/digits/export/best/1"]


def test_a_link_is_as_large_as_what_it_leads_to(job: JobFile, directory: Path) -> None:
    (before,) = model_dirs(NOTHING)
    (directory / "runs/digits").rename(directory / "disk")
    (directory / "runs/digits").symlink_to(directory / "disk")
    (there,) = model_dirs(NOTHING)
    assert there == before
    (directory / "runs").rename(directory / "all")
    (directory / "runs").symlink_to("all")
    (runs,) = held("http://host")
    assert runs.num_bytes > 0
    (directory / "all/digits").unlink()
    (directory / "disk").rename(directory / "all/digits")
    assert held("http://host") == [Held("runs", before.parts[2].num_bytes)]


def test_files_that_cannot_be_removed_are_a_fault(job: JobFile, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = model_dirs(NOTHING)
    monkeypatch.setattr("shutil.rmtree", lambda path, ignore_errors: None)  # of root, who may remove all but few
    first, second = found.remove_old()
    assert "runs/digits/export/best/.psflow-tmp-" in first
    assert "cannot be removed" in first
    assert first != second


def test_an_export_that_an_alias_names_stays(job: JobFile, directory: Path) -> None:
    client = MlflowClient(copy_store(directory))
    run = client.create_run("0").info.run_id
    named(client, run, "runs/digits/export/best/1")
    needs = recorded(client.tracking_uri)
    assert list(needs.exports.values()) == ["models:/digits@champion"]
    assert old(dict(needs.exports)) == ["runs/digits/export/best/3"]


def test_nothing_goes_of_a_model_dir_in_use(job: JobFile) -> None:
    (before,) = model_dirs(NOTHING)
    owner = JobFile("runs/digits")
    owner.claim()  # a training begins while somebody reads what may go
    (now,) = model_dirs(NOTHING)
    assert now.old_exports == ()
    assert "runs/digits is in use by" in now.stays[0]
    (reason,) = before.remove_old()
    assert "runs/digits is in use by" in reason
    assert len(os.listdir("runs/digits/export/best")) == 5


def test_nothing_goes_where_the_best_is_not_known(job: JobFile, directory: Path) -> None:
    (directory / "runs/digits/export/best/best.json").write_text("{")
    (found,) = model_dirs(NOTHING)
    assert found.old_exports == ()
    assert "best.json: damaged" in found.stays[0]


@pytest.mark.process
def test_deleted_runs_go_by_the_tool_of_mlflow(directory: Path) -> None:
    client = MlflowClient(copy_store(directory))
    experiment = client.create_experiment("e", artifact_location=(directory / "mlartifacts/1").as_uri())
    kept, deleted = (client.create_run(experiment).info.run_id for _ in range(2))
    client.log_text(deleted, "x" * 300, "note")
    client.delete_run(deleted)
    runs = recorded(client.tracking_uri).deleted
    assert (runs.run_ids, runs.num_bytes, runs.needed) == ((deleted,), 300, None)
    remove_deleted_runs(client.tracking_uri, client.tracking_uri)
    assert recorded(client.tracking_uri).deleted.run_ids == ()
    assert [run.info.run_id for run in client.search_runs([experiment])] == [kept]
    assert not (directory / "mlartifacts/1" / deleted / "artifacts/note").exists()


def test_a_deleted_run_that_an_alias_names_stays(directory: Path) -> None:
    client = MlflowClient(copy_store(directory))
    run = client.create_run("0").info.run_id
    named(client, run, "export")
    client.delete_run(run)
    needed = recorded(client.tracking_uri).deleted.needed
    assert needed == f"models:/digits@champion comes from run {run}, which is deleted; restore it, or remove the alias"


@pytest.mark.parametrize("model_dir", ["runs/digits", "runs/nightly/20261121T020000Z"])
def test_a_deleted_run_of_a_model_dir_in_use_stays(directory: Path, model_dir: str) -> None:
    client = MlflowClient(copy_store(directory))
    run = client.create_run("0").info.run_id
    client.delete_run(run)
    owner = JobFile(model_dir)
    owner.claim()
    owner.update(run_id=run)
    needed = recorded(client.tracking_uri).deleted.needed
    assert needed is not None
    assert needed.startswith(f"run {run} is deleted, but model_dir ")
    owner.release()
    assert recorded(client.tracking_uri).deleted.needed is None


@pytest.mark.process
def test_a_tool_that_fails_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ConfigError, match="mlflow gc ended with 1"):
        remove_deleted_runs("sqlite:///mlflow.db", "sqlite:///mlflow.db")


@pytest.mark.parametrize("content", ["", "CREATE TABLE mine (x)"])
def test_a_file_without_a_store_is_left_as_it_is(job: JobFile, content: str) -> None:
    file = Path("mlflow.db")
    file.touch()
    with closing(sqlite3.connect(file)) as database:
        database.executescript(content)
    before = file.read_bytes()
    job.claim()
    job.update(run_id="f" * 32)
    job.release()
    uri = f"sqlite:///{file.absolute()}"
    assert recorded(uri).lacking.keys() == {"runs/digits"}
    assert str(run_fault(uri, "f" * 32)).startswith(f"the MLflow run {'f' * 32} of this job is not in sqlite:///")
    assert file.read_bytes() == before
