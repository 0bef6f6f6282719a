from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from psflow.flows import cli
from psflow.flows.inspect import clean as clean_module
from psflow.flows.inspect.doctor import machine_findings
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.tasks.cleaning import Recorded
from psflow.tasks.tracking.store import mlflow_client
from tests.new_databases import copy_store


@pytest.fixture(autouse=True)
def exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of a model_dir with three exports."""
    monkeypatch.chdir(tmp_path)
    job = JobFile("runs/digits")
    job.claim()
    exporter = tmp_path / "runs/digits/export/latest"
    for version in ("1", "2", "3"):
        (exporter / version).mkdir(parents=True)
        (exporter / version / "weights").write_bytes(b"w" * 1000)
    job.release()
    return exporter


def exports(exporter: Path) -> list[str]:
    return sorted(name for name in os.listdir(exporter) if name[0] != ".")


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_what_may_go_is_shown_and_stays(exporter: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["clean", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("runs: 3.")
    assert [line for line in lines if "old export" in line] == [
        f"  runs/digits/export/latest/{version}: 1 KB (an old export)" for version in (1, 2)
    ]
    assert lines[-1] == "nothing was removed; psflow clean --yes removes 2 KB"
    assert exports(exporter) == ["1", "2", "3"]
    assert not Path("mlflow.db").exists()


def test_yes_removes_what_may_go(exporter: Path) -> None:
    answer = io.StringIO()
    assert cli.run(["clean", "--yes", "--json"], answer) == 0
    facts = json.loads(answer.getvalue())
    assert facts["old_exports"] == {f"runs/digits/export/latest/{version}": 1000 for version in (1, 2)}
    assert (facts["bytes"], facts["removed"], facts["faults"]) == (2000, True, [])
    assert exports(exporter) == ["3"]
    again = io.StringIO()
    assert cli.run(["clean", "--json"], again) == 0
    assert json.loads(again.getvalue())["bytes"] == 0


def test_yes_has_mlflow_remove_what_is_deleted(
    exporter: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(clean_module, "remove_deleted_runs", lambda *stores: asked.append(stores))
    store = copy_store(Path.cwd())
    client = mlflow_client(store)
    client.delete_run(client.create_run("0").info.run_id)
    assert cli.run(["clean"]) == 0
    assert "  1 deleted runs of MLflow: 0 bytes" in capsys.readouterr().out.splitlines()
    assert asked == []
    assert cli.run(["clean", "--yes"]) == 0
    assert asked == [(store, store)]


def test_nothing_goes_while_mlflow_does_not_say_what_its_aliases_name(
    exporter: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert cli.run(["clean", "--yes"]) == 2
    assert "nothing is removed while the aliases of MLflow are unknown" in capsys.readouterr().err
    assert exports(exporter) == ["1", "2", "3"]


@pytest.mark.parametrize("model_dir", ["runs/digits", "runs/nightly/20261121T020000Z"])
@pytest.mark.parametrize("has_store", [False, True])
def test_nothing_goes_of_a_job_that_another_store_has_recorded(
    has_store: bool, model_dir: str, exporter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if has_store:
        copy_store(Path.cwd())
    Path(model_dir).parent.mkdir(exist_ok=True)
    Path("runs/digits").rename(model_dir)
    job = JobFile(model_dir)
    job.claim()
    job.update(run_id="f00")  # on a server, which MLFLOW_TRACKING_URI named then
    job.release()
    assert cli.run(["clean", "--yes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{model_dir}: the MLflow run f00 of this job is not in sqlite:///" in lines[lines.index("kept:") + 1]
    assert lines[-1] == "nothing to remove"
    assert exports(Path(model_dir, exporter.relative_to(exporter.parents[1]))) == ["1", "2", "3"]


def test_a_model_dir_that_came_into_use_makes_the_exit_code_1(
    exporter: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    look = clean_module.model_dirs

    def then_in_use(needs: Recorded) -> object:
        found = look(needs)
        JobFile("runs/digits").claim()
        return found

    monkeypatch.setattr(clean_module, "model_dirs", then_in_use)
    assert cli.run(["clean", "--yes"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "runs/digits is in use by" in lines[lines.index("could not be removed:") + 1]
    assert lines[-1] == "some items could not be removed"
    assert exports(exporter) == ["1", "2", "3"]


def test_dry_run_and_yes_contradict_each_other(exporter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["clean", "--dry-run", "--yes"]) == 2
    assert capsys.readouterr().err == "psflow: expected either --dry-run or --yes, got both\n"
    assert exports(exporter) == ["1", "2", "3"]


def test_doctor_shows_sizes() -> None:
    copy_store(Path.cwd())
    (sizes,) = (finding for finding in machine_findings() if finding.topic == "sizes")
    assert sizes.text.startswith("runs: 3.")
    assert ", mlflow.db: " in sizes.text
