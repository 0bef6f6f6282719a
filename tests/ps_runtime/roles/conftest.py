"""The roles of a job as threads, connected as its transport says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest

from psflow.ps_runtime.client.shard_client import Connect
from psflow.ps_runtime.cluster.own_security import new_pem
from psflow.ps_runtime.cluster.role_task import ps_connect
from psflow.ps_runtime.errors import StoppedError
from psflow.ps_runtime.roles.chief import run_chief
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.events import PsListening
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.roles.ps import run_ps
from psflow.ps_runtime.roles.trainer import run_worker
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.ps_runtime.specs.task_facts import TaskFacts
from psflow.ps_runtime.transport.listeners import Address

WAIT_SECS = 200


class RoleThreads:
    """Runs each role of a job in a thread of its own, until it ends or `stop` is set."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.addresses: list[Address] = []
        """Of all ps that were started."""
        self._threads: list[threading.Thread] = []

    def check(self) -> None:
        if self.stop.is_set():
            raise StoppedError("this role", "the test is over")

    def context(self, job: JobSpec, role: Role, index: int = 0, send: Any = lambda event: None) -> RoleContext:
        return RoleContext(RoleId(role, index), job.attempt, self.check, send)

    def start(self, run: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()

        def target() -> None:
            try:
                future.set_result(run())
            except BaseException as error:
                future.set_exception(error)

        self._threads.append(threading.Thread(target=target, daemon=True))
        self._threads[-1].start()
        return future

    def start_ps(self, job: JobSpec, *, is_alone: bool = True) -> tuple[list[Future[Any]], list[Connect]]:
        """Start all ps of a job; return their reports to come, and how to reach them."""
        reports, connect_functions = [], []
        job = replace(job, certificate=job.certificate or new_pem())  # as ClusterJob does
        for index in range(job.num_ps):
            addresses: SimpleQueue[Address] = SimpleQueue()
            context = self.context(
                job,
                Role.PS,
                index,
                send=lambda event, q=addresses: q.put(event.address) if isinstance(event, PsListening) else None,
            )
            reports.append(self.start(lambda c=context: run_ps(job, c, "127.0.0.1", is_alone=is_alone)))
            address = addresses.get(timeout=WAIT_SECS)
            self.addresses.append(address)
            connect_functions.append(ps_connect(address, job, "ps"))
        return reports, connect_functions

    def train(self, job: JobSpec) -> dict[str, dict[str, Any]]:
        """Run all roles but an evaluator; return their reports. The chief runs in this thread."""
        all_ps, connect_functions = self.start_ps(job)
        workers = [
            self.start(
                lambda i=i: run_worker(
                    _as_seen_by(job, Role.WORKER, i), self.context(job, Role.WORKER, i), connect_functions
                )
            )
            for i in range(job.num_workers)
        ]
        reports = {"chief-0": run_chief(_as_seen_by(job, Role.CHIEF), self.context(job, Role.CHIEF), connect_functions)}
        reports |= {f"worker-{i}": future.result(WAIT_SECS) for i, future in enumerate(workers)}
        return reports | {f"ps-{i}": future.result(WAIT_SECS) for i, future in enumerate(all_ps)}

    def join(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(WAIT_SECS)
        assert not any(thread.is_alive() for thread in self._threads)


def _as_seen_by(job: JobSpec, role: Role, index: int = 0) -> JobSpec:
    """Return what the Dask task of a role makes of a job: its config knows which role that is."""
    facts = TaskFacts.of(RoleId(role, index), job.num_ps, job.num_workers)
    return replace(job, config=job.config.as_seen_by(facts))


@pytest.fixture
def roles() -> Iterator[RoleThreads]:
    threads = RoleThreads()
    yield threads
    threads.join()
