"""Checks of servers that change nothing."""

from __future__ import annotations

from pathlib import Path

from mlflow import MlflowClient

from psflow.tasks.connectivity import run_fault


def test_the_run_of_a_resumed_job_is_looked_for(store: str, tmp_path: Path) -> None:
    client = MlflowClient(store, store)
    run_id = client.create_run("0").info.run_id
    assert run_fault(store, run_id) is None
    client.delete_run(run_id)
    assert f"{run_id} of this job was deleted; restore it" in str(run_fault(store, run_id))
    for uri in (store, f"sqlite:///{tmp_path}/none.db"):
        said = run_fault(uri, "f" * 32)
        assert said is not None
        assert said.startswith(f"the MLflow run {'f' * 32} of this job is not in sqlite:///")
    assert not (tmp_path / "none.db").exists()
