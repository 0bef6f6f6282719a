"""Runs the process of any role but the chief, of a manually started cluster."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import dask
from distributed import Security
from distributed.comm.core import FatalCommClosedError
from distributed.core import rpc
from distributed.utils import get_ip

from psflow.ps_runtime.checkpoint.file_store import SHARED
from psflow.ps_runtime.checkpoint.files import look_again, reading
from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.certificate_file import FOLDER, read_certificate
from psflow.ps_runtime.cluster.chief_process import describe, is_of_cluster
from psflow.ps_runtime.cluster.closed_nodes import QUIET, quiet_logs, shown_warnings
from psflow.ps_runtime.cluster.host_addresses import (
    check_can_listen,
    dask_address,
    dask_host,
    listen_fault,
    resolved,
)
from psflow.ps_runtime.cluster.own_security import is_own, security_of
from psflow.ps_runtime.cluster.role_worker import RoleWorker
from psflow.ps_runtime.cluster.scheduler_rpc import SchedulerPoll
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import ConfigError, LostDirectoryError, StoppedError, UsageError, WaitTimeoutError
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.roles.events import Event
from psflow.ps_runtime.roles.trainer import TrainingLoop, train
from psflow.ps_runtime.scratch import scratch_directory
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses
from psflow.ps_runtime.specs.roles import RoleId

T = TypeVar("T")

JOIN_TIMEOUT_SECS = 40.0
"""For processes to find each other: with its start and its end a lone process takes less than a minute."""
APART_SECS = 8.0
"""For a shared file system to show the certificate of a present chief to this host."""
POLL_SECS = 0.2
CONNECT_TIMEOUT_SECS = 5.0
"""For one of several attempts."""
ANSWER_TIMEOUT_SECS = 5.0
"""For one question to a chief that is there."""
ECHO_SECS = 5.0
"""Between two questions to a chief whose process has been joined."""
MAX_SHOWN = 300
"""Characters shown of a setting that differs."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """The part of the job that a process has itself, beside what the chief sends."""

    facts: Mapping[str, str] | None = None
    input_fn: Callable[..., Any] | None = None
    training_loop: TrainingLoop = train
    nothing_left: Callable[[bool], str | None] = lambda has_waited: None
    """Returns why there is nothing to do for this process, which may have waited long enough for a chief."""


class _NothingLeftError(Exception):
    """The process has come after the end of its job."""


def join_manual_cluster(
    cluster: ClusterAddresses,
    role: RoleId,
    model_dir: str,
    own: OwnProgram,
    on_event: Callable[[Event], None],
    timeout_secs: float = JOIN_TIMEOUT_SECS,
    check: Callable[[], None] = never_stop,
) -> None:
    """Run the process of `role` until the chief reports that the job is finished. Blocks.

    Raises
    ------
    UsageError
        If this process cannot listen at its address, or cannot read the certificate; or if the role is there already.
    ConfigError
        If the chief has another cluster, another model_dir, or other settings of the program.
    LostDirectoryError
        If the chief is there, and its certificate is not in the model_dir that this host sees.
    WaitTimeoutError
        If there is no chief.
    StoppedError
        If the job failed, or the chief has given this process up, is gone, or does not answer for five minutes.
    """
    with (
        quiet_logs(),
        shown_warnings(),
        scratch_directory() as scratch,
        dask.config.set(QUIET),
    ):
        asyncio.run(_JoinAttempt(cluster, role, model_dir, own, Deadline(timeout_secs), check).run(on_event, scratch))


@dataclass(frozen=True, slots=True)
class _JoinAttempt:
    """An attempt to join, and its time limit."""

    cluster: ClusterAddresses
    role: RoleId
    model_dir: str
    own: OwnProgram
    deadline: Deadline
    check: Callable[[], None] = never_stop

    async def run(self, on_event: Callable[[Event], None], scratch: str) -> None:
        try:
            await self._join(on_event, scratch)
        except _NothingLeftError as end:
            logger.info("%s: %s", self.role, end)
        except StoppedError:  # the chief may close as this process joins
            if (why := self.own.nothing_left(False)) is None:
                raise
            logger.info("%s: %s", self.role, why)
        except UsageError as refusal:
            if differences := await self._report(refusal):
                raise ConfigError(differences) from None
            raise

    async def _join(self, on_event: Callable[[Event], None], scratch: str) -> None:
        address = self.cluster.address_of(self.role)
        host, port = (None, 0) if address is None else check_can_listen(str(self.role), address)
        security, description = await self._meet()
        if differences := self._differences(description):
            raise ConfigError(differences)
        chief_host, chief_port = resolved(self.cluster.chief)
        worker = RoleWorker(
            dask_address(self.cluster.chief),
            on_event=on_event,
            input_fn=self.own.input_fn,
            training_loop=self.own.training_loop,
            name=str(self.role),
            nthreads=1,
            memory_limit=0,
            host=dask_host(get_ip(chief_host, chief_port) if host is None else host),
            port=port,
            protocol="tls://",
            security=security,
            local_directory=scratch,
            death_timeout=min(JOIN_TIMEOUT_SECS, max(1.0, self.deadline.remaining_secs)),
        )
        try:
            async with worker:
                await self._finished(worker)
        except RuntimeError as error:  # Dask wraps the first cause, which is what happened
            raise self._refusal(error.__cause__ or error) from error
        self._check_end(worker)

    async def _finished(self, worker: RoleWorker) -> None:
        """Wait until the chief has closed the worker, or `check` raises, or the chief does not answer for too long."""
        finished = asyncio.ensure_future(worker.finished())  # type: ignore[no-untyped-call]
        poll = SchedulerPoll(
            worker, lambda scheduler: scheduler.echo(), ECHO_SECS, self._chief, self._no_longer_answers
        )
        with contextlib.closing(poll):
            while not finished.done():
                self.check()
                poll.look()
                await asyncio.wait({finished}, timeout=POLL_SECS)

    def _no_longer_answers(self, secs: float) -> StoppedError:
        """Return the error; by then the scheduler of a chief that continues has removed this process (worker-ttl)."""
        what = f"{self._chief} did not answer for {secs:g} s; check whether it is stopped, and end it; then"
        return StoppedError(str(self.role), f"{what} start all processes again to resume")

    async def _report(self, refusal: UsageError) -> tuple[str, ...]:
        """Report to the chief that this process does not join, until it answers; else it would wait for hours.

        Returns the differences from the chief: if its cluster differs, the process at this address is in its right
        place.
        """
        logger.error("%s; reporting it to %s", refusal, self._chief)
        differences: tuple[str, ...] = ()
        with contextlib.suppress(UsageError, WaitTimeoutError, OSError, _NothingLeftError):  # it may not be there
            _, description = await self._meet()
            differences = self._differences(description)
            faults = list(differences or refusal.faults)
            await self._ask(lambda chief: chief.note_refusal(name=str(self.role), faults=faults))
        return differences

    async def _meet(self) -> tuple[Security, dict[str, str]]:
        """Wait until the chief answers; return its security settings, and its description of the cluster."""
        return await self._ask(lambda chief: chief.describe_cluster())

    async def _ask(self, question: Callable[[Any], Awaitable[T]]) -> tuple[Security, T]:
        """Ask the chief until it answers; return its security settings, and the answer."""
        apart = Deadline(APART_SECS)
        while True:
            self.check()
            last: Exception | None = None
            try:
                pem = read_certificate(self.model_dir)
                if pem is not None:
                    security = security_of(pem)
                    async with self._scheduler(security) as chief:
                        return security, await _answer(question(chief))
                may_be_apart = True
            except (UsageError, OSError) as error:  # of an earlier cluster, perhaps, or the chief is not there yet
                last, may_be_apart = error, isinstance(error, FatalCommClosedError)
            if not (may_be_apart and await self._is_there()):
                apart = Deadline(APART_SECS)
            elif apart.has_passed:
                raise self._not_shared("no certificate" if last is None else "another certificate")
            if (why := self.own.nothing_left(self.deadline.has_passed)) is not None:
                raise _NothingLeftError(why)
            if self.deadline.has_passed:
                raise self._no_answer(last)
            look_again(os.path.join(self.model_dir, FOLDER, "."))
            await asyncio.sleep(POLL_SECS)

    async def _is_there(self) -> bool:
        """Return whether a chief listens at its address, which has written its certificate before.

        It shows a certificate of psflow, and has the key of it. This process has no certificate, so it cannot tell of
        which cluster.
        """
        with contextlib.suppress(OSError, ValueError):  # ValueError: not a certificate
            # not by asyncio: the refusal of a peer without a certificate may end the handshake too early
            shown = await asyncio.to_thread(
                ssl.get_server_certificate, resolved(self.cluster.chief), timeout=ANSWER_TIMEOUT_SECS
            )
            return is_own(shown)
        return False

    def _not_shared(self, found: str) -> LostDirectoryError:
        what = f"{self._chief} is there, but {self.role} on {socket.gethostname()} finds {found} of it in {FOLDER}/"
        other = "if all hosts see this one, the chief of another job listens there: choose another port"
        return LostDirectoryError(shown_path(self.model_dir), f"{what}; {SHARED}; {other}")

    def _no_answer(self, last: Exception | None) -> Exception:
        """Return the error if the chief does not answer: the last attempt found no certificate, or had an error."""
        if isinstance(last, UsageError):
            return last
        why = self._no_certificate() if last is None else last
        detail = f"{why}; start it, and give all processes the same cluster, and the same model_dir"
        return WaitTimeoutError(self._chief, "answer", self.deadline.timeout_secs, detail)

    def _scheduler(self, security: Security) -> rpc:
        """Return a connection to the process of the chief, open in a ``with`` block."""
        connection_args = security.get_connection_args("worker")
        timeout_secs = min(CONNECT_TIMEOUT_SECS, max(1.0, self.deadline.remaining_secs))
        return rpc(dask_address(self.cluster.chief), timeout=timeout_secs, connection_args=connection_args)

    def _differences(self, of_chief: dict[str, str]) -> tuple[str, ...]:
        facts = self.own.facts
        own = describe(self.cluster, self.model_dir, {} if facts is None else facts)
        if facts is None:
            of_chief = {name: value for name, value in of_chief.items() if is_of_cluster(name)}
        return tuple(
            f"{name} is {_shown(own.get(name))}, but {_shown(of_chief.get(name))} for {self._chief}; "
            "give all processes the same"
            for name in {**own, **of_chief}
            if own.get(name) != of_chief.get(name)
        )

    def _refusal(self, cause: BaseException) -> Exception:
        if "name taken" in str(cause):
            remedy = "start each process once, or first end the one that is there"
            return UsageError((f"{self.role} has joined {self._chief} already; {remedy}",))
        address = self.cluster.address_of(self.role)
        if address is not None and isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
            return listen_fault(str(self.role), address, cause)  # one that was started at the same time was earlier
        return StoppedError(str(self.role), f"it could not join {self._chief}: {cause}")

    def _check_end(self, worker: RoleWorker) -> None:
        if worker.failure is not None:
            raise StoppedError(str(self.role), f"{self._chief} ended the job: {worker.failure}")
        if worker.is_given_up:
            why = "gave up this process, which was silent for too long"
            raise StoppedError(str(self.role), f"{self._chief} {why}; start it again by the same command")
        if not worker.has_finished:
            what = f"{self._chief} is gone; look at its output, then start all processes again to resume"
            raise StoppedError(str(self.role), what)

    def _no_certificate(self) -> str:
        why = f"there is no certificate of it in {os.path.join(self.model_dir, FOLDER)}"
        with reading(self.model_dir):
            finished = read_finished(self.model_dir)
        return why if finished is None else f"{why}; the job there has finished at step {finished.final_step}"

    @property
    def _chief(self) -> str:
        return f"the chief at {self.cluster.chief}"


async def _answer(question: Awaitable[T]) -> T:
    """Wait for the answer of the chief: a stopped process keeps its connections, but does not answer."""
    try:
        return await asyncio.wait_for(question, ANSWER_TIMEOUT_SECS)
    except TimeoutError:
        raise OSError(f"its process is there, but did not answer within {ANSWER_TIMEOUT_SECS:g} s") from None
    except ValueError as error:  # tornado's error for a peer that speaks before the handshake
        raise OSError(f"another program listens there ({error})") from None


def _shown(value: str | None) -> str:
    if value is None:
        return "not there"
    return value if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]}... ({len(value):,} characters)"
