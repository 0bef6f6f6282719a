"""Prefect artifacts of a flow run: progress, tables, links."""

from __future__ import annotations

import contextvars
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from distributed import Client
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from psflow.flows.parameters.train import TrainParameters
from psflow.flows.prefect_runs import label_flow_run
from psflow.ps_runtime.config.files import flat
from psflow.ps_runtime.deadline import stop_clock
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.prefect_server.api import has_pages
from psflow.tasks.tracking.run import NOTE
from psflow.tasks.tracking.store import link

MAX_FLOW_RUNS = 50
"""Maximum number of named runs: MLflow allows 8,000 characters in a tag, and a link has about 120."""


@dataclass(frozen=True)
class PageLinks:
    """Addresses of one attempt at a job."""

    prefect_flow_run: str | None
    prefect_page: str | None
    dask_dashboard: str | None
    model_dir: str
    registered_model: str
    earlier_flow_runs: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def flow_runs(self) -> dict[str, str | None]:
        """Flow runs of the last `MAX_FLOW_RUNS` attempts, this one last."""
        runs = {run_id: page for run_id, page in self.earlier_flow_runs.items() if run_id != self.prefect_flow_run}
        if self.prefect_flow_run is not None:
            runs[self.prefect_flow_run] = self.prefect_page
        return dict(list(runs.items())[-MAX_FLOW_RUNS:])

    def tags(self) -> dict[str, str | None]:
        """Return tags of the MLflow run: the ids, and a description in markdown; None removes a tag."""
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
    """Return the addresses of the job that the current flow run trains on a cluster.

    Notes
    -----
    A local cluster has no dashboard; the scheduler of another cluster knows its address.
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
    except KeyError:  # raised by Dask if the scheduler has no dashboard
        return None


UPDATE_SECS = 2.0
"""Seconds between updates of the progress: each costs about 16 ms, mostly in the server."""
MAX_ROWS = 500
"""Maximum number of rows of a table."""

_log = logging.getLogger(__name__)


class Artifacts:
    """Writes the artifacts of one flow run in a background thread.

    Notes
    -----
    No method raises, and only `close` blocks. An unavailable server is logged once, and its artifacts are lost. Only
    the last progress counts. Create and close it inside a flow run.
    """

    def __init__(self, name: str) -> None:
        self._name = _key(name)
        self._orders: deque[Callable[[], object]] = deque()
        self._progress: tuple[float, str] | None = None
        self._progress_id: Any = None
        self._has_failed = False
        self._wake = threading.Event()
        self._is_closing = False
        context = contextvars.copy_context()  # it holds the flow run
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="psflow-artifacts", daemon=True)
        self._thread.start()

    def progress(self, percent: float, line: str) -> None:
        """Show progress; sends at most one update in `UPDATE_SECS`."""
        self._progress = (percent, line)

    def link(self, kind: str, url: str, text: str, description: str = "") -> None:
        """Show a link."""
        order = partial(create_link_artifact, url, text, f"{self._name}-{kind}", description or None)
        self._order(order)

    def label(self, **labels: str) -> None:
        """Add labels to the flow run, such as ids in other systems."""
        self._order(partial(label_flow_run, **labels))

    def table(self, kind: str, rows: Sequence[Mapping[str, Any]], description: str = "") -> None:
        """Show the last `MAX_ROWS` rows of a table; an empty table is not shown."""
        if rows:
            plain = [dict(row) for row in rows[-MAX_ROWS:]]
            self._order(partial(create_table_artifact, plain, f"{self._name}-{kind}", description or None))

    def text(self, kind: str, markdown: str, description: str = "") -> None:
        """Show a page of markdown."""
        self._order(partial(create_markdown_artifact, markdown, f"{self._name}-{kind}", description or None))

    def close(self, timeout_secs: float = 5.0) -> None:
        """Send pending artifacts, or drop them after `timeout_secs`. Idempotent."""
        self._is_closing = True
        self._wake.set()
        self._thread.join(stop_clock.limited(timeout_secs))

    def _order(self, order: Callable[[], object]) -> None:
        self._orders.append(order)
        self._wake.set()

    def _run(self) -> None:
        shown, shown_at = None, -UPDATE_SECS
        is_last = False
        while not is_last:
            self._wake.wait(UPDATE_SECS)
            self._wake.clear()
            is_last = self._is_closing
            while self._orders:
                self._attempt(self._orders.popleft())
            now = time.monotonic()
            if self._progress != shown and (is_last or now - shown_at >= UPDATE_SECS):
                shown, shown_at = self._progress, now
                self._attempt(self._send_progress)

    def _send_progress(self) -> None:
        assert self._progress is not None
        percent, line = self._progress
        if self._progress_id is None:
            self._progress_id = create_progress_artifact(percent, f"{self._name}-progress", line)
        else:
            update_progress_artifact(self._progress_id, percent, line)

    def _attempt(self, request: Callable[[], object]) -> None:
        try:
            request()
        except Exception as error:  # training must go on
            if not self._has_failed:
                reason = without_secrets(str(error)) or type(error).__name__
                _log.warning("could not write artifacts to Prefect: %s", reason)
            self._has_failed = True


def show_summary(name: str, summary: Mapping[str, Any]) -> None:
    """Show the summary of the current flow run as a table; waits for the server only briefly."""
    artifacts = Artifacts(name)
    rows = [{"what": key, "value": str(value)} for key, value in flat(summary)]
    artifacts.table("summary", rows, "Results of the flow run.")
    artifacts.close()


def _key(name: str) -> str:
    """Return `name` reduced to characters that Prefect allows in a key: lowercase letters, numbers, dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
