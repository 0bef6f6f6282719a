"""Where else to look at a job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.watching import page_links as module
from psflow.flows.watching.page_links import PageLinks, current_links

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
    links = current_links(CLIENT, "/models/t", parameters(address="tcp://host:8786"))
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
def test_a_server_without_pages_is_not_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_pages", lambda: False)
    links = current_links(CLIENT, "/models/t", parameters())
    assert (links.prefect_flow_run, links.prefect_page) == ("f1", None)
    tags = links.tags()
    assert (tags["psflow.prefect_flow_run"], tags["psflow.prefect_page"]) == ("f1", None)
    assert "http" not in str(tags["mlflow.note.content"])


def test_our_own_cluster_has_no_dashboard() -> None:
    assert current_links(CLIENT, "d", parameters()).dask_dashboard is None


def test_the_scheduler_at_an_address_may_have_no_dashboard() -> None:
    class Bare:
        @property
        def dashboard_link(self) -> str:
            return {}["dashboard"]

    bare: Any = Bare()
    assert current_links(bare, "d", parameters(address="tls://host:8786")).dask_dashboard is None


def test_outside_a_flow_run_there_are_no_pages() -> None:
    links = current_links(CLIENT, "d", parameters())
    assert (links.prefect_flow_run, links.prefect_page) == (None, None)


def test_no_password_is_told() -> None:
    assert "s3cret" not in str(PageLinks(None, None, None, "s3://key:s3cret@bucket/d", "m").tags())
