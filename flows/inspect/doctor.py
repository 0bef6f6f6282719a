"""Answers ``psflow doctor``: checks this machine, servers and a Dask cluster, with a remedy for each fault."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

from distributed import Client

from psflow.flows.inspect.endpoints import mlflow_endpoint, prefect_endpoint
from psflow.flows.output import Answer, ExitCode
from psflow.flows.parameters.cluster import PredictClusterParameters
from psflow.flows.parameters.parsing import parse_as
from psflow.ps_runtime.checkpoint.files import replacing, storing
from psflow.ps_runtime.cluster.admission import free_slots
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.worker_facts import worker_facts
from psflow.ps_runtime.config.environment import prefect_home
from psflow.ps_runtime.config.files import Origin
from psflow.ps_runtime.errors import StorageError, UsageError, WaitTimeoutError
from psflow.ps_runtime.transport.shared_memory import why_no_shared_memory
from psflow.tasks.cleaning import held
from psflow.tasks.connectivity import within
from psflow.tasks.tracking.store import store_uri


class Level(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; `text` includes a remedy unless the level is OK."""

    level: Level
    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:<8} {self.topic:<8} {self.text}"


PACKAGES = ("psflow", "prefect", "mlflow", "dask", "distributed", "numpy")
OPTIONAL_PACKAGES = ("torch",)
PROBE_BYTES = 1 << 20
SCARCE_BYTES = 1 << 30
"""Free space below which a warning is shown: a few checkpoints of a large model."""


def machine_findings() -> Iterator[Finding]:
    """Check this machine."""
    optional = [name for name in OPTIONAL_PACKAGES if find_spec(name)]
    versions = ", ".join(f"{package} {version(package)}" for package in (*PACKAGES, *optional))
    yield Finding(Level.OK, "versions", f"Python {platform.python_version()}, {versions}")
    for path in dict.fromkeys((Path.cwd(), prefect_home(), Path(tempfile.gettempdir()))):
        yield directory_finding(path)
    if sizes := held(store_uri()):
        yield Finding(Level.OK, "sizes", f"{', '.join(map(str, sizes))}; psflow clean lists what can be removed")
    reason = why_no_shared_memory()
    if reason:
        yield Finding(Level.WARNING, "memory", f"cannot be shared: {reason}; roles use sockets, which is slower")
    else:
        yield Finding(Level.OK, "memory", f"can be shared; {os.cpu_count()} processors")


def server_findings() -> Iterator[Finding]:
    """Check that the servers of commands in this directory answer."""
    for topic, endpoint in (("prefect", prefect_endpoint()), ("mlflow", mlflow_endpoint())):
        if endpoint.fault is None:
            yield Finding(Level.OK, topic, str(endpoint))
        else:
            yield Finding(Level.FAULT, topic, endpoint.fault)


def directory_finding(path: Path) -> Finding:
    """Write, sync, read and remove a file in `path`, or in its nearest existing parent; check the free space."""
    path = next(place for place in (path, *path.parents) if place.exists())
    probe = path / f".psflow-doctor-{secrets.token_hex(4)}"
    data = secrets.token_bytes(PROBE_BYTES)
    began = time.monotonic()
    try:
        with storing(str(path)):
            with replacing(str(probe)) as stream:
                stream.write(data)
            is_same = probe.read_bytes() == data
            free = shutil.disk_usage(path).free
    except StorageError as error:
        what = (
            f"{path}: expected to write {PROBE_BYTES >> 20} MB, got {error.reason}; free space or correct permissions"
        )
        return Finding(Level.FAULT, "disk", what)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    if not is_same:
        return Finding(Level.FAULT, "disk", f"{path}: a file does not read back as written; check the disk")
    millis = 1000 * (time.monotonic() - began)
    text = f"{path}: {free / 1e9:.3g} GB free, {PROBE_BYTES >> 20} MB written and synced in {millis:.0f} ms"
    if free < SCARCE_BYTES:
        return Finding(Level.WARNING, "disk", f"{text}; free space before a long training")
    return Finding(Level.OK, "disk", text)


TIMEOUT_SECS = 30.0
"""Timeout for the answers of all workers, and for a task."""
MUST_BE_SAME = ("psflow", "python", "dask", "distributed")
SHOULD_BE_SAME = ("numpy", "scipy", "cloudpickle", "msgpack")
MAX_SKEW_SECS = 5.0
"""Limit of clock skew; a lease lasts 30 s."""

T = TypeVar("T")


def cluster_findings(address: str | None, mark_directory: Path) -> Iterator[Finding]:
    """Check the cluster at `address`, or a temporary one on this machine."""
    open_to: list[str] = []
    try:
        with open_cluster(address, 1, TIMEOUT_SECS, warn=open_to.append) as client:
            yield from (Finding(Level.WARNING, "security", fault) for fault in open_to)
            yield from _findings(client, address, mark_directory)
    except (UsageError, WaitTimeoutError, TimeoutError, OSError) as error:
        yield Finding(Level.FAULT, "cluster", str(error))


def _findings(client: Client, address: str | None, mark_directory: Path) -> Iterator[Finding]:
    seen = _within(lambda: cast("dict[str, Any]", client.scheduler_info(n_workers=-1)), "the Dask scheduler")
    workers = seen["workers"]
    num_slots = sum(worker["nthreads"] for worker in workers.values())
    where = address or "a temporary one on this machine"
    if not workers:
        yield Finding(Level.FAULT, "cluster", f"{where} has no workers; start workers: dask worker {where}")
        return
    yield Finding(Level.OK, "cluster", f"{where}; workers: {len(workers)}, slots: {num_slots}")
    mark = mark_directory / f".psflow-doctor-{secrets.token_hex(4)}"
    try:
        if address is not None:
            packages = [*MUST_BE_SAME, *SHOULD_BE_SAME]
            versions = _within(lambda: cast("dict[str, Any]", client.get_versions(packages=packages)))
            yield from version_findings(versions)
            with contextlib.suppress(OSError):
                mark.write_text(mark.name)
            facts = _within(lambda: client.run(worker_facts, str(mark), on_error="return"))
            yield from _worker_findings(facts, mark)
        yield _task_finding(client, workers, str(mark))
    except (WaitTimeoutError, OSError) as error:
        yield Finding(Level.FAULT, "cluster", f"{error}; restart the workers that do not answer")
    finally:
        mark.unlink(missing_ok=True)


def version_findings(versions: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that scheduler and workers have the versions of the client."""
    ours = versions["client"]["packages"]
    peers = {"the scheduler": versions["scheduler"]} | {
        f"worker {name}": of for name, of in versions["workers"].items()
    }
    others: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    for name, peer in peers.items():
        packages = (peer or {}).get("packages", {})
        for package in (*MUST_BE_SAME, *SHOULD_BE_SAME):
            if _comparable(package, packages.get(package)) != _comparable(package, ours.get(package)):
                others[package, packages.get(package)].append(name)
    for (package, theirs), names in others.items():
        level = Level.FAULT if package in MUST_BE_SAME else Level.WARNING
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        got = f"has {theirs}" if theirs else "lacks it"
        what = f"{package} is {ours.get(package)} here, {names[0]}{more} {got}; install the same version everywhere"
        yield Finding(level, "versions", what)
    if not others:
        yield Finding(Level.OK, "versions", "the same on the scheduler and all workers")


def _comparable(package: str, version: str | None) -> str | None:
    """Return the part of a version that must match: of Python the first two numbers."""
    return ".".join(version.split(".")[:2]) if package == "python" and version else version


def _worker_findings(facts: Mapping[str, Any], mark: Path) -> Iterator[Finding]:
    answers = {name: answer for name, answer in facts.items() if isinstance(answer, Mapping)}
    for name, error in facts.items():
        if name not in answers:
            yield Finding(Level.FAULT, "cluster", f"worker {name} cannot run psflow: {error!r}; install it there")
    blind = [name for name, answer in answers.items() if answer["mark"] != mark.name]
    if blind:
        what = f"{len(blind)} of {len(answers)} workers, such as {blind[0]}, cannot see {mark.parent}"
        yield Finding(Level.WARNING, "disk", f"{what}; use a model_dir on a file system that all hosts share")
    elif answers:
        yield Finding(Level.OK, "disk", f"all workers can see {mark.parent}")
    now = time.time()
    skews = {name: abs(now - answer["time"]) for name, answer in answers.items()}
    worst = max(skews, key=lambda name: skews[name], default=None)
    if worst is not None and skews[worst] > MAX_SKEW_SECS:
        what = f"the clock of Dask worker {worst} differs by {skews[worst]:.0f} s; synchronize clocks (NTP)"
        yield Finding(Level.WARNING, "clock", what)


def _task_finding(client: Client, workers: Mapping[str, Any], mark: str) -> Finding:
    slots = free_slots(workers, client.processing())
    if not slots:
        return Finding(
            Level.WARNING,
            "task",
            "no task ran, because all slots are in use; run psflow doctor again when a job has ended",
        )
    began = time.monotonic()
    future = client.submit(worker_facts, mark, workers=slots[:1], pure=False, retries=0)
    try:
        host = future.result(timeout=TIMEOUT_SECS)["host"]
    except Exception as error:  # a worker, or a package installed there, may raise anything
        future.cancel()
        what = f"{slots[0]} did not run a task within {TIMEOUT_SECS:g} s: {error!r}; see the log of that worker"
        return Finding(Level.FAULT, "task", what)
    return Finding(Level.OK, "task", f"ran on {host} in {1000 * (time.monotonic() - began):.0f} ms")


def _within(ask: Callable[[], T], who: str = "at least one Dask worker") -> T:
    """Call `ask` with a timeout for the answer of `who`; Dask's own calls wait forever for a hanging peer."""
    try:
        return within(TIMEOUT_SECS, ask, who)
    except WaitTimeoutError:
        raise
    except Exception as error:
        raise OSError(f"the cluster did not answer: {error!r}") from error


def doctor(address: str | None) -> Answer:
    """Check this machine, the servers and a cluster; a fault sets exit code 1.

    Raises ConfigError if `address` is not that of a scheduler.
    """
    parse_as(PredictClusterParameters, {"address": address}, {"address": Origin("--address")})
    findings = [*machine_findings(), *server_findings(), *cluster_findings(address, Path.cwd())]
    num_faults, num_warnings = (sum(f.level is level for f in findings) for level in (Level.FAULT, Level.WARNING))
    summary = f"faults: {num_faults}, warnings: {num_warnings}" if num_faults or num_warnings else "no faults"
    facts = {"findings": [_facts(finding) for finding in findings], "faults": num_faults, "warnings": num_warnings}
    return Answer(facts, [*map(str, findings), "", summary], ExitCode.FAILED if num_faults else ExitCode.OK)


def _facts(finding: Finding) -> dict[str, str]:
    return {"level": finding.level.value, "topic": finding.topic, "text": finding.text}
