"""Closes orphaned runs, whose processes were killed before they could report their end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.owners import OWNER, TO_COMPLETE, ended_step, is_orphaned, owner_text
from psflow.tasks.tracking.child_run import unended_runs
from psflow.tasks.tracking.store import mlflow_client, prepare_store

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State

FLOW_RUN_TAG = "psflow"
MAX_FLOW_RUNS = 200
"""Limit of runs per call, as in Prefect; more are closed the next time."""
OPEN = ["PENDING", "RUNNING", "SCHEDULED", "CANCELLING"]
"""States of runs that have not ended. A task run may also be paused: that of a role that has left in order."""
MESSAGE = (
    "its process has ended, killed or lost with its host; the command that started it resumes from the last checkpoint"
)
NOT_RECORDED = "training reached step {}, but MLflow could not be reached; " + TO_COMPLETE

_log = logging.getLogger(__name__)


def close_orphaned_runs(*, in_prefect: bool = True, in_mlflow: bool = True) -> int:
    """Mark runs in the current Prefect API and MLflow store as ended if their process has ended; return their number.

    Notes
    -----
    A run whose process is alive, or cannot be checked from here, is never touched. Failures are logged, and not raised.
    """
    num_closed = 0
    for close, is_asked in ((close_flow_runs, in_prefect), (close_mlflow_runs, in_mlflow)):
        if not is_asked:
            continue
        try:
            num_closed += close()
        except Exception as error:  # each kind of server has its own errors; none concerns the caller
            _log.warning("cannot mark the runs of ended processes: %s", without_secrets(str(error)))
    return num_closed


def close_flow_runs() -> int:
    """Mark flow runs of psflow without a process, and their child runs, as crashed; return the number of flow runs.

    Runs that were being cancelled become Cancelled, however their process ended.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter

    running = {"type": {"any_": ["RUNNING", "CANCELLING"]}}
    mine = FlowRunFilter.model_validate({"tags": {"all_": [FLOW_RUN_TAG]}, "state": running})
    closed: set[UUID] = set()
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_run_filter=mine, limit=MAX_FLOW_RUNS)
        # a stage follows its pipeline, and ends like it
        for run in sorted(runs, key=lambda run: run.parent_task_run_id is not None):
            if run.id not in closed and is_orphaned(run.labels):
                closed |= _close(client, run, _last_state(run))
    return len(closed)


def _last_state(run: FlowRun) -> State[Any]:
    from prefect.states import Cancelled, Crashed

    if run.state is not None and run.state.is_cancelling():
        return Cancelled(message=run.state.message)
    return Crashed(message=MESSAGE)


def _close(client: SyncPrefectClient, run: FlowRun, state: State[Any]) -> set[UUID]:
    """Set the final state of a run and of its open child runs; return the flow runs among them."""
    from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter

    of_this = FlowRunFilter.model_validate({"id": {"any_": [run.id]}})
    below = FlowRunFilter.model_validate({"parent_flow_run_id": {"any_": [run.id]}, "state": {"type": {"any_": OPEN}}})
    open_tasks = TaskRunFilter.model_validate({"state": {"type": {"any_": [*OPEN, "PAUSED"]}}})
    closed = {run.id}
    for stage in client.read_flow_runs(flow_run_filter=below, limit=MAX_FLOW_RUNS):
        if OWNER not in stage.labels or is_orphaned(stage.labels):
            closed |= _close(client, stage, state)
    for task_run in client.read_task_runs(flow_run_filter=of_this, task_run_filter=open_tasks, limit=MAX_FLOW_RUNS):
        client.set_task_run_state(task_run.id, state, force=True)
    client.set_flow_run_state(run.id, state, force=True)
    _log.warning("flow run %r is marked as %s: %s", run.name, str(state.name).lower(), state.message or MESSAGE)
    return closed


def note_cancelling(processes: Mapping[UUID, ProcessId], message: str) -> None:
    """Mark flow runs as cancelling, and record their processes; ended runs are unchanged.

    The runs then become Cancelled: by their process, else by `close_flow_runs`.
    """
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelling

    with get_client(sync_client=True) as client:
        for run_id, process in processes.items():
            client.update_flow_run_labels(run_id, {OWNER: owner_text(process)})
            client.set_flow_run_state(run_id, Cancelling(message=message))


def close_mlflow_runs() -> int:
    """Mark psflow's MLflow runs without a process as killed, or as finished if training did; return their number."""
    client = mlflow_client(prepare_store())
    orphaned = [run for run in unended_runs(client, OWNER) if is_orphaned(run.data.tags)]
    for run in orphaned:
        step = ended_step(run.data.tags)
        if step is None:
            client.set_terminated(run.info.run_id, "KILLED")
            _log.warning("MLflow run %r is marked as killed: %s", run.info.run_name, MESSAGE)
        else:
            client.set_terminated(run.info.run_id, "FINISHED")
            _log.warning("MLflow run %r is marked as finished: %s", run.info.run_name, NOT_RECORDED.format(step))
    return len(orphaned)
