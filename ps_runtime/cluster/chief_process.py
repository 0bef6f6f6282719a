"""Runs the chief process of a manually started cluster: the scheduler, a worker, and the client of both."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, SpecCluster

from psflow.ps_runtime.cluster.admission import free_slots, look
from psflow.ps_runtime.cluster.certificate_file import announced, kept_certificate
from psflow.ps_runtime.cluster.closed_nodes import QUIET, quiet_logs, shown_warnings
from psflow.ps_runtime.cluster.host_addresses import check_can_listen, dask_host
from psflow.ps_runtime.cluster.own_security import new_pem, security_of
from psflow.ps_runtime.cluster.role_worker import CHIEF, EVALUATOR, ChiefScheduler, RoleWorker
from psflow.ps_runtime.cluster.versions import COMPARED, own_versions
from psflow.ps_runtime.deadline import Deadline, stop_clock
from psflow.ps_runtime.errors import PsflowError, StoppedError, UsageError, WaitTimeoutError
from psflow.ps_runtime.roles.events import Event
from psflow.ps_runtime.roles.trainer import TrainingLoop, train
from psflow.ps_runtime.scratch import scratch_directory
from psflow.ps_runtime.signals import how_it_ended
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses
from psflow.ps_runtime.specs.roles import Role, RoleId

START_TIMEOUT_SECS = 60.0
"""For the scheduler, the worker and the client of this process."""
CLOSE_TIMEOUT_SECS = 30.0
"""For the worker of this process to end; its role may be in a long call."""
LATE_SECS = 10.0
"""For a process that was started with a chief whose plan has failed, and imports its program more slowly."""
LATE_EVALUATOR_SECS = 3.0
"""For an evaluator that may never come."""
POLL_SECS = 0.1
SAY_AFTER_SECS = 5.0
"""Before the log says which processes the chief waits for."""
SAY_AGAIN_SECS = 30.0

logger = logging.getLogger(__name__)


def describe(cluster: ClusterAddresses, model_dir: str, program: Mapping[str, str]) -> dict[str, str]:
    """Return the settings on which all processes of a cluster must agree, as texts; the evaluator is left out."""
    addresses = {f"cluster.{kind}": repr(list(names)) for kind, names in cluster.spec.as_dict().items()}
    return {**addresses, "model_dir": repr(model_dir), **own_versions(), **program}


def is_of_cluster(name: str) -> bool:
    """Whether a setting concerns processes without a program, too: the cluster, the model_dir, and the versions."""
    return name == "model_dir" or name.startswith("cluster.") or name in COMPARED


@contextmanager
def open_manual_cluster(
    cluster: ClusterAddresses,
    model_dir: str,
    program: Mapping[str, str],
    *,
    evaluator: bool,
    on_event: Callable[[Event], None],
    training_loop: TrainingLoop = train,
) -> Iterator[ManualCluster]:
    """Open a cluster that the other processes join, and close it; they then end, with the outcome of the block.

    Raises
    ------
    UsageError
        If this process cannot listen at the address of the chief.
    StoppedError
        If the scheduler does not start.
    """
    host, port = check_can_listen("the chief", cluster.chief)
    processes = cluster.processes(evaluator=evaluator)
    pem = new_pem()
    own = {"nthreads": len(processes[CHIEF]), "on_event": on_event, "training_loop": training_loop}
    with (
        quiet_logs(),
        shown_warnings(),
        scratch_directory() as scratch,
        dask.config.set(QUIET),
        kept_certificate(model_dir, pem),  # first: else others see no certificate of a listening chief
        announced(cluster.spec, model_dir),
        _nodes(pem, host, port, describe(cluster, model_dir, program), own, scratch) as nodes,
        Client(nodes, timeout=START_TIMEOUT_SECS) as client,
    ):
        scheduler: Any = nodes.scheduler
        try:
            yield ManualCluster(client, cluster, processes, scheduler)
        except BaseException as error:
            scheduler.note_end(_shown(error))
            raise
        scheduler.note_end(None)


class ManualCluster:
    """A cluster as its chief sees it."""

    def __init__(
        self,
        client: Client,
        cluster: ClusterAddresses,
        processes: Mapping[str, tuple[RoleId, ...]],
        scheduler: ChiefScheduler,
    ) -> None:
        self.client = client
        self._cluster = cluster
        self._processes = processes
        self._scheduler = scheduler

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Have a failure of the block end the other processes at once, also those that join a little later."""
        try:
            yield
        except StoppedError:  # whoever stops this process ends the others, too
            raise
        except Exception as error:
            failure = f"it failed while it planned: {_shown(error)}"
            self._scheduler.note_end(f"{failure}; see its output")
            self._end_late_ones(failure)
            raise

    def _end_late_ones(self, failure: str) -> None:
        deadline, of_evaluator, has_said = Deadline(LATE_SECS), Deadline(LATE_EVALUATOR_SECS), False
        while not deadline.has_passed:
            self._scheduler.loop.add_callback(self._scheduler.end_joined)
            time.sleep(POLL_SECS)
            missing = self._processes.keys() - {CHIEF, *self._scheduler.ended, *self._scheduler.refusals}
            if of_evaluator.has_passed and self._cluster.evaluator_may_be_missing:
                missing -= {EVALUATOR}
            if not missing:
                return
            if not has_said:
                has_said = True
                logger.error(
                    "the chief ends: %s; it waits up to %.0f s for %s, so that processes that are starting end, too",
                    failure,
                    LATE_SECS,
                    self._named(missing),
                )

    def await_processes(self, timeout_secs: float, check: Callable[[], None]) -> dict[RoleId, str]:
        """Wait until all processes have joined; return the address of the Dask worker of each role. Blocks.

        It does not wait for an evaluator that may be missing.

        Raises
        ------
        UsageError
            If one of them has found that it cannot join, and no other one of its role does.
        WaitTimeoutError
            If one of them does not come.
        """
        deadline, say = Deadline(timeout_secs), Deadline(SAY_AFTER_SECS)
        awaited = self._processes.keys() - ({EVALUATOR} if self._cluster.evaluator_may_be_missing else set())
        while missing := awaited - (joined := self._joined()).keys():
            check()
            self._raise_refusals(missing)
            if deadline.has_passed:
                raise WaitTimeoutError(self._named(missing), "join the chief", timeout_secs, self._remedy(missing))
            if say.has_passed:
                logger.warning(
                    "waiting up to %.0f s more for %s; a process that does not find this model_dir ends with an error",
                    deadline.remaining_secs,
                    self._named(missing),
                )
                say = Deadline(SAY_AGAIN_SECS)
            time.sleep(POLL_SECS)
        return {role: joined[name] for name, roles in self._processes.items() if name in joined for role in roles}

    def slot_of(self, role: RoleId) -> str | None:
        """Return the Dask worker of the process that carries `role`; None while it is absent or busy."""
        workers, tasks = look(self.client)
        address = _by_name(workers).get(self._process_of(role))
        return address if address in free_slots(workers, tasks) else None

    def slot_of_chief(self) -> str | None:
        """Return the Dask worker of the chief's process; None while a role runs there."""
        return self.slot_of(RoleId(Role.CHIEF, 0))

    def has_joined(self, role: RoleId) -> bool:
        """Return whether the process that carries `role` is there, busy or not."""
        return self._process_of(role) in self._joined()

    def _process_of(self, role: RoleId) -> str:
        [name] = [name for name, roles in self._processes.items() if role in roles]
        return name

    def _raise_refusals(self, missing: set[str]) -> None:
        refused = {name: refusal for name, refusal in self._scheduler.refusals.items() if name in missing}
        faults = [
            f"{name} does not join: {fault}"
            for name, refusal in refused.items()
            if refusal.deadline.has_passed
            for fault in refusal.faults
        ]
        if faults:
            raise UsageError(tuple(faults))

    def _remedy(self, missing: set[str]) -> str:
        remedy = f"start {'it' if len(missing) == 1 else 'each of them'}, with the cluster of this process"
        return f"{remedy}; to allow more time, set session_creation_timeout_secs of RunConfig"

    def _joined(self) -> dict[str, str]:
        workers, _ = look(self.client)
        return _by_name(workers)

    def _named(self, missing: set[str]) -> str:
        addresses = {name: self._cluster.address_of(roles[0]) for name, roles in self._processes.items()}
        return ", ".join(
            name if address is None else f"{name} ({address})" for name, address in addresses.items() if name in missing
        )


def _by_name(workers: Mapping[str, Any]) -> dict[str, str]:
    return {worker["name"]: address for address, worker in workers.items()}


def _shown(error: BaseException) -> str:
    return str(error) if isinstance(error, PsflowError) else how_it_ended(error)


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def _nodes(
    pem: str, host: str, port: int, description: dict[str, str], own: dict[str, Any], scratch: str
) -> Iterator[SpecCluster]:
    """Start the scheduler and the worker of this process, with options of its `own`, in a thread; close them."""
    security = security_of(pem)
    common = {
        "host": dask_host(host),
        "protocol": "tls://",
        "security": security,
        "local_directory": scratch,  # else Dask leaves one behind
    }
    try:
        nodes = SpecCluster(
            scheduler={"cls": ChiefScheduler, "options": {**common, "port": port, "description": description}},
            workers={CHIEF: {"cls": RoleWorker, "options": {**common, "memory_limit": 0, **own}}},
            security=security,
            silence_logs=logging.CRITICAL,
        )
    except Exception as error:  # Dask wraps the first cause, which is what happened
        raise StoppedError(CHIEF, f"its scheduler, at {host}:{port}, did not start: {_first_cause(error)}") from error
    try:
        yield nodes
    finally:
        timeout_secs = stop_clock.limited(CLOSE_TIMEOUT_SECS)
        try:
            nodes.close(timeout=timeout_secs)
        except TimeoutError:
            logger.warning("the Dask worker of the chief did not end within %g s", timeout_secs)
