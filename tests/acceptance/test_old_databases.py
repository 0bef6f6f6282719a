"""An MLflow store that an older MLflow has made: each command says so before it starts anything, one upgrades it."""

from __future__ import annotations

import pytest

from tests.flows.conftest import TABLE_CONF, Project
from tests.old_databases import downgrade_store

pytestmark = [pytest.mark.piece(number=3), pytest.mark.timeout(600)]


def test_an_old_store_is_refused_by_each_command_and_upgraded_by_up(project: Project) -> None:
    _, before = downgrade_store(project.path / "mlflow.db")
    (project.path / "t.csv").write_text("a,b,y\n1,2,0\n3,4,1\n5,6,0\n")
    conf = project.write("t.yaml", TABLE_CONF)
    for command in (["plan", conf], ["train", conf], ["up"]):
        answer, _ = project.heard(*command, exit_code=2)
        assert "was made by an older MLflow: its schema is" in str(answer), command
        assert "run `mlflow db upgrade sqlite:///" in str(answer), command
    servers = project.run("up", "--upgrade")
    try:
        assert servers["copies"] == [str(project.path / f"mlflow.db.{before}.bak")]
        assert project.run("train", conf)["final_step"] == 2
    finally:
        project.run("down")
