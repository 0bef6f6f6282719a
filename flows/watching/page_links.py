"""Where else to look at a job: its pages and ids in Prefect, MLflow and Dask, each told to the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distributed import Client
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from psflow.flows.parameters.train import TrainParameters
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.prefect_server.api import has_pages
from psflow.tasks.tracking.pages import link
from psflow.tasks.tracking.run import NOTE

__all__ = ["PageLinks", "current_links"]

MAX_FLOW_RUNS = 50
"""That are named: MLflow takes 8,000 characters in a tag, and a link has about 120."""


@dataclass(frozen=True)
class PageLinks:
    """The places of one attempt at a job."""

    prefect_flow_run: str | None
    prefect_page: str | None
    dask_dashboard: str | None
    model_dir: str
    registered_model: str
    earlier_flow_runs: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def flow_runs(self) -> dict[str, str | None]:
        """The flow runs of the last `MAX_FLOW_RUNS` attempts, this one at the end."""
        runs = {run_id: page for run_id, page in self.earlier_flow_runs.items() if run_id != self.prefect_flow_run}
        if self.prefect_flow_run is not None:
            runs[self.prefect_flow_run] = self.prefect_page
        return dict(list(runs.items())[-MAX_FLOW_RUNS:])

    def tags(self) -> dict[str, str | None]:
        """Return tags of the MLflow run: the ids, and a description in markdown; None for what there is not."""
        return {
            "psflow.model_dir": without_secrets(self.model_dir),
            "psflow.prefect_flow_run": self.prefect_flow_run,
            "psflow.prefect_flow_runs": ", ".join(self.flow_runs) or None,
            "psflow.prefect_page": self.prefect_page,
            "psflow.dask_dashboard": self.dask_dashboard,
            NOTE: self.note(),
        }

    def note(self) -> str:
        """Return the description of the run, in markdown."""
        places = {"model_dir": f"`{without_secrets(self.model_dir)}`", "registered model": f"`{self.registered_model}`"}
        if self.prefect_flow_run is not None:
            places["Prefect flow run"] = link(self.prefect_flow_run, self.prefect_page)
        earlier = [link(run_id, page) for run_id, page in self.flow_runs.items() if run_id != self.prefect_flow_run]
        if earlier:
            places["Prefect flow runs of earlier attempts"] = ", ".join(earlier)
        if self.dask_dashboard is not None:
            places["Dask dashboard, while it runs"] = link(self.dask_dashboard, self.dask_dashboard)
        return "\n".join(f"- {what}: {where}" for what, where in places.items())


def current_links(
    client: Client, model_dir: str, parameters: TrainParameters, earlier_flow_runs: Mapping[str, str | None]
) -> PageLinks:
    """Return the places of the job that the current flow run trains on a cluster.

    Notes
    -----
    A cluster of our own has no dashboard; of another one its scheduler knows.
    """
    page = url_for("flow-run", flow_run.id) if flow_run.id is not None and has_pages() else None
    dashboard = None if parameters.cluster.address is None else _dashboard(client)
    return PageLinks(
        prefect_flow_run=flow_run.id,
        prefect_page=None if page is None else without_secrets(page),
        dask_dashboard=None if dashboard is None else without_secrets(dashboard),
        model_dir=model_dir,
        registered_model=parameters.registered_model,
        earlier_flow_runs=earlier_flow_runs,
    )


def _dashboard(client: Client) -> str | None:
    try:
        return client.dashboard_link or None
    except KeyError:  # so Dask answers for a scheduler that has none
        return None
