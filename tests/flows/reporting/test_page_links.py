"""Links to the pages of a job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.reporting import artifacts as module
from psflow.flows.reporting.artifacts import PageLinks, current_links

CONF = {
    "experiment": "t",
    "model": {"name": "m:line"},
    "input": {"train": {"name": "m:points"}, "eval": {"name": "m:points"}},
    "train": {"max_steps": 2},
}
CLIENT: Any = SimpleNamespace(dashboard_link="http://127.0.0.1:8787/status")


def parameters(**cluster: Any) -> TrainParameters:
    return parse_parameters({**CONF, "cluster": cluster}, {})


@pytest.fixture
def flow_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "flow_run", SimpleNamespace(id="f1"))
    monkeypatch.setattr(module, "url_for", lambda kind, obj_id: f"http://host/runs/{kind}/{obj_id}")


@pytest.mark.usefixtures("flow_run")
def test_links_both_ways() -> None:
    links = current_links(CLIENT, "/models/t", parameters(address="tcp://host:8786"), {})
    assert links.prefect_page == "http://host/runs/flow-run/f1"
    tags = links.tags()
    assert tags["psflow.prefect_flow_run"] == "f1"
    assert str(tags["mlflow.note.content"]).splitlines() == [
        "- model_dir: `/models/t`",
        "- registered model: `psflow-t`",
        "- Prefect flow run: [f1](http://host/runs/flow-run/f1)",
        "- Dask dashboard, while it runs: [http://127.0.0.1:8787/status](http://127.0.0.1:8787/status)",
    ]


@pytest.mark.usefixtures("flow_run")
def test_a_resumed_run_names_the_flow_runs_of_all_its_attempts() -> None:
    links = current_links(CLIENT, "d", parameters(), {"e1": "http://host/runs/flow-run/e1", "e2": None, "f1": None})
    assert links.flow_runs == {
        "e1": "http://host/runs/flow-run/e1",
        "e2": None,
        "f1": "http://host/runs/flow-run/f1",  # Prefect has tried it again: one flow run
    }
    tags = links.tags()
    assert tags["psflow.prefect_flow_runs"] == "e1, e2, f1"
    assert str(tags["mlflow.note.content"]).splitlines()[2:] == [
        "- Prefect flow run: [f1](http://host/runs/flow-run/f1)",
        "- Prefect flow runs of earlier attempts: [e1](http://host/runs/flow-run/e1), `e2`",
    ]


@pytest.mark.usefixtures("flow_run")
def test_of_many_attempts_the_last_are_named_and_mlflow_takes_them() -> None:
    page = "http://127.0.0.1:4200/runs/flow-run/0195e7c2-8a53-7d2c-8d0f-4a2b6f1d9c30"
    links = current_links(
        CLIENT, "d", parameters(), {f"0195e7c2-8a53-7d2c-8d0f-4a2b6f1d{i:04}": page for i in range(99)}
    )
    assert [len(links.flow_runs), list(links.flow_runs)[-1]] == [50, "f1"]
    assert all(len(str(value)) < 8000 for value in links.tags().values())


@pytest.mark.usefixtures("flow_run")
def test_a_server_without_pages_is_not_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_pages", lambda: False)
    links = current_links(CLIENT, "/models/t", parameters(), {})
    assert (links.prefect_flow_run, links.prefect_page) == ("f1", None)
    tags = links.tags()
    assert (tags["psflow.prefect_flow_run"], tags["psflow.prefect_page"]) == ("f1", None)
    assert "http" not in str(tags["mlflow.note.content"])


def test_our_own_cluster_has_no_dashboard() -> None:
    assert current_links(CLIENT, "d", parameters(), {}).dask_dashboard is None


def test_the_scheduler_at_an_address_may_have_no_dashboard() -> None:
    class Bare:
        @property
        def dashboard_link(self) -> str:
            return {}["dashboard"]

    bare: Any = Bare()
    assert current_links(bare, "d", parameters(address="tls://host:8786"), {}).dask_dashboard is None


def test_outside_a_flow_run_there_are_no_pages() -> None:
    links = current_links(CLIENT, "d", parameters(), {})
    assert (links.prefect_flow_run, links.prefect_page) == (None, None)


def test_no_password_is_reported() -> None:
    assert "s3cret" not in str(PageLinks(None, None, None, "s3://key:s3cret@bucket/d", "m").tags())
