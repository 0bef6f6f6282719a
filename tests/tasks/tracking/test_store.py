from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from pathlib import Path

import mlflow
import pytest

from psflow.ps_runtime.errors import ConfigError
from psflow.tasks.tracking.store import artifact_location, mlflow_client, prepare_store, reason_of
from psflow.tasks.tracking.tracker import Tracker
from tests.limits import HANG_SECS
from tests.new_databases import copy_store


def test_path_of_a_store_becomes_absolute(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert prepare_store("sqlite:///mlflow.db") == f"sqlite:///{tmp_path}/mlflow.db"
    assert artifact_location(store) == f"file://{tmp_path}/mlartifacts"
    assert sorted(os.listdir(tmp_path)) == ["mlflow.db"]


def test_environment_names_the_store(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    assert prepare_store() == store


def test_default_of_the_process_stays_what_it_is(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    prepare_store(f"sqlite:///{tmp_path}/other.db")
    assert "MLFLOW_TRACKING_URI" not in os.environ
    assert mlflow.get_tracking_uri() == before


def test_server_that_does_not_answer(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ConfigError, match=r"http://127.0.0.1:1 cannot be used.*start it or correct"):
        prepare_store("http://127.0.0.1:1")


def test_unknown_kind_of_store(store: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        prepare_store("nosuch://x")


@pytest.mark.process
def test_a_complete_file_is_found_usable_without_mlflow(tmp_path: Path) -> None:
    store = copy_store(tmp_path)
    client = mlflow_client(store)
    client.delete_experiment(client.create_experiment("used"))
    program = "import sys; from psflow.tasks.tracking.store import prepare_store; print(prepare_store(sys.argv[1]))"
    program += "; print('mlflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, store], capture_output=True, text=True, timeout=HANG_SECS)
    assert done.stdout.split() == [store, "False"], done.stderr


@pytest.mark.parametrize(
    "uri", ["http://bob:s3cret@127.0.0.1:1/x?token=s3cret", "nosuch://bob:s3cret@x", "http://bob:s3cret@host:s3cret@/"]
)
def test_password_is_not_shown(
    store: str, uri: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    caplog.set_level(logging.INFO)
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        prepare_store(uri)
    texts = [str(caught.value), repr(caught.value), caplog.text, *traceback.format_exception(caught.value)]
    assert not [text for text in texts if "s3cret" in text]
    assert "Retrying" not in caplog.text


def test_password_is_not_shown_when_a_run_is_opened(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    uri = "http://bob:s3cret@127.0.0.1:1"
    with pytest.raises(ConfigError, match=r"cannot open an MLflow run in http://127\.0\.0\.1:1: ") as caught:
        Tracker.open(uri, experiment="e", run_name="r")
    assert "s3cret" not in "".join([repr(caught.value), *traceback.format_exception(caught.value)])


def test_reason_names_a_missing_package() -> None:
    assert reason_of(ModuleNotFoundError("No module named 'a.b'", name="a.b")) == (
        "it needs the package a, which is not installed"
    )
    assert reason_of(ValueError()) == "ValueError"


def test_what_a_signal_has_left_half_made_is_made_anew(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    uri = f"sqlite:///{tmp_path}/another.db"
    with monkeypatch.context() as patched:
        patched.setattr("mlflow.store.db.utils._upgrade_db", interrupted)  # after the first tables, before the others
        with pytest.raises(KeyboardInterrupt):
            prepare_store(uri)
    assert not (tmp_path / "another.db").exists()
    assert prepare_store(uri) == uri
    assert [e.name for e in mlflow_client(uri).search_experiments()] == ["Default"]
    assert not list(tmp_path.glob(".another.db*"))
