"""Tags of the last attempt in the run of a job."""

from __future__ import annotations

from collections.abc import Callable

from mlflow import MlflowClient

from psflow.flows.reporting.artifacts import PageLinks
from psflow.tasks.tracking.tracker import Tracker


def test_a_resumed_run_has_no_page_of_an_earlier_attempt(store: str, open_tracker: Callable[..., Tracker]) -> None:
    def tags_of(links: PageLinks) -> dict[str, str]:
        tracker = open_tracker(run_id=run_ids[-1], tags=links.tags())
        tracker.close()
        run_ids.append(tracker.run_id)
        return dict(MlflowClient(store, store).get_run(tracker.run_id).data.tags)

    run_ids: list[str | None] = [None]
    first = tags_of(PageLinks("f1", "http://prefect/f1", "http://dask/status", "/models/t", "psflow-t"))
    assert (first["psflow.prefect_page"], first["psflow.dask_dashboard"]) == ("http://prefect/f1", "http://dask/status")
    second = tags_of(PageLinks("f2", None, None, "/models/t", "psflow-t"))
    assert second["psflow.prefect_flow_run"] == "f2"
    assert {"psflow.prefect_page", "psflow.dask_dashboard"}.isdisjoint(second)
    assert "http://" not in second["mlflow.note.content"]
    assert tags_of(PageLinks("f3", None, None, "/models/t", "psflow-t")).keys() == second.keys()
    assert tags_of(PageLinks("f4", "http://prefect/f4", None, "/m", "m"))["psflow.prefect_page"] == "http://prefect/f4"
