"""Answers ``psflow clean``: sizes of the files of trainings, and removal of those that are no longer needed."""

from __future__ import annotations

from collections.abc import Sequence

from psflow.flows.inspect.endpoints import mlflow_endpoint
from psflow.flows.output import Answer, ExitCode
from psflow.ps_runtime.errors import ConfigError
from psflow.tasks.cleaning import (
    ModelDir,
    Recorded,
    held,
    model_dirs,
    recorded,
    remove_deleted_runs,
    size_text,
)
from psflow.tasks.connectivity import store_fault
from psflow.tasks.started_servers import found
from psflow.tasks.tracking.store import keep_quiet, sqlite_path, store_uri


def clean(*, removes: bool) -> Answer:
    """List the sizes of files of trainings, and which of them can be removed; remove those if `removes`.

    Raises ConfigError if the MLflow store is unusable: its aliases are then unknown.
    """
    store, needs = store_uri(), _recorded()
    dirs, deleted = model_dirs(needs), needs.deleted
    old = [export for one in dirs for export in one.old_exports]
    goes = bool(deleted.run_ids) and deleted.needed is None and sqlite_path(store) is not None
    stays = [reason for one in dirs for reason in one.stays]
    if deleted.run_ids and not goes:
        stays.append(f"deleted runs of MLflow: {deleted.needed or 'run mlflow gc on the host of its database'}")
    num_bytes = sum(export.num_bytes for export in old) + deleted.num_bytes * goes
    sizes = held(store)
    facts = {
        "held": {one.path: one.num_bytes for one in sizes},
        "old_exports": {export.path: export.num_bytes for export in old},
        "deleted_runs": list(deleted.run_ids) if goes else [],
        "bytes": num_bytes,
    }
    may_go = [f"{export} (an old export)" for export in old]
    if goes:
        may_go.append(f"{len(deleted.run_ids)} deleted runs of MLflow: {size_text(deleted.num_bytes)}")
    faults = _removed(dirs, store if goes else None) if removes else []
    lines = [*map(str, sizes), *(f"  {part}" for one in dirs for part in one.parts if part.num_bytes)]
    lines += _section("can be removed:", may_go) + _section("kept:", stays) + _section("could not be removed:", faults)
    lines += ["", _outcome(num_bytes if may_go else None, removes, faults)]
    facts |= {"stays": stays, "faults": faults, "removed": removes and not faults}
    return Answer(facts, lines, ExitCode.FAILED if faults else ExitCode.OK)


def _outcome(num_bytes: int | None, removes: bool, faults: Sequence[str]) -> str:
    """Return the outcome for `num_bytes` that can be removed; None: nothing."""
    if num_bytes is None:
        return "nothing to remove"
    if not removes:
        return f"nothing was removed; psflow clean --yes removes {size_text(num_bytes)}"
    return "some items could not be removed" if faults else f"removed {size_text(num_bytes)}"


def _removed(dirs: Sequence[ModelDir], store: str | None) -> list[str]:
    """Remove what is not needed; return the faults."""
    kept = [reason for one in dirs if one.old_exports for reason in one.remove_old()]
    if store is not None:
        try:
            remove_deleted_runs(found().mlflow_uri(store) or store, store)
        except ConfigError as error:
            kept += error.faults
    return kept


def _recorded() -> Recorded:
    answers: list[Recorded] = []

    def ask(uri: str) -> str | None:
        keep_quiet()
        fault = store_fault(uri)
        if fault is None:
            answers.append(recorded(uri))
        return fault

    endpoint = mlflow_endpoint(ask=ask)
    if endpoint.fault is not None:
        raise ConfigError((f"{endpoint.fault}; nothing is removed while the aliases of MLflow are unknown",))
    return answers[0]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines)] if lines else []
