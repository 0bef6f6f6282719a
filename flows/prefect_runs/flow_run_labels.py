"""What a flow run in Prefect says of the process that runs it, and of what it works on."""

from __future__ import annotations

from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from psflow.tasks.owners import OWNER, owner_text

__all__ = ["label_flow_run"]


def label_flow_run(**labels: str) -> None:
    """Give the current flow run this process as its owner, and `labels`; those that it has already stay.

    Outside a flow run nothing happens. Blocks for one request.
    """
    if flow_run.id is not None:
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(UUID(flow_run.id), {OWNER: owner_text(), **labels})
