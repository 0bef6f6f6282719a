"""What ``psflow clean`` answers: what trainings have left on this disk, and what of it may go or has gone."""

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
    """Tell how large what trainings have left here is, and which of it may go; remove that if `removes`.

    Raises
    ------
    ConfigError
        If the MLflow store cannot be used: then nobody knows what its aliases name.
    """
    store, needs = store_uri(), _recorded()
    dirs, deleted = model_dirs(needs), needs.deleted
    old = [export for one in dirs for export in one.old_exports]
    goes = bool(deleted.run_ids) and deleted.needed is None and sqlite_path(store) is not None
    stays = [reason for one in dirs for reason in one.stays]
    if deleted.run_ids and not goes:
        stays.append(f"deleted runs of MLflow: {deleted.needed or 'run mlflow gc where its database is'}")
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
    lines += _section("may go:", may_go) + _section("stays:", stays) + _section("could not be removed:", faults)
    lines += ["", _outcome(num_bytes if may_go else None, removes, faults)]
    facts |= {"stays": stays, "faults": faults, "removed": removes and not faults}
    return Answer(facts, lines, ExitCode.FAILED if faults else ExitCode.OK)


def _outcome(num_bytes: int | None, removes: bool, faults: Sequence[str]) -> str:
    """Return what has become of what may go, of so many bytes; None: there is nothing."""
    if num_bytes is None:
        return "nothing may go"
    if not removes:
        return f"nothing was removed; psflow clean --yes removes {size_text(num_bytes)}"
    return "some of it is still there" if faults else f"removed {size_text(num_bytes)}"


def _removed(dirs: Sequence[ModelDir], store: str | None) -> list[str]:
    """Remove what may go; return why some of it is still there."""
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
        raise ConfigError((f"{endpoint.fault}; nothing may go while nobody knows what the aliases of MLflow name",))
    return answers[0]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines)] if lines else []
