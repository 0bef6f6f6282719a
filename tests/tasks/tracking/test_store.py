from __future__ import annotations

import os
from pathlib import Path

import pytest

from ps_runtime.errors import ConfigError
from tasks.tracking import prepare_store
from tasks.tracking.store import artifact_location, shown


def test_path_of_a_store_becomes_absolute(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert prepare_store("sqlite:///mlflow.db") == f"sqlite:///{tmp_path}/mlflow.db"
    assert artifact_location(store) == f"file://{tmp_path}/mlartifacts"
    assert sorted(os.listdir(tmp_path)) == ["mlflow.db"]


def test_environment_names_the_store(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    assert prepare_store() == store


def test_server_that_does_not_answer(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ConfigError, match=r"http://127.0.0.1:1 cannot be used.*start it or correct"):
        prepare_store("http://127.0.0.1:1")


def test_unknown_kind_of_store(store: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        prepare_store("nosuch://x")


def test_password_is_not_shown() -> None:
    assert shown("http://user:secret@host:5000/x") == "http://host:5000/x"
    assert shown("sqlite:////a@b/mlflow.db") == "sqlite:////a@b/mlflow.db"
