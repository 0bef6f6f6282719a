"""A job without a cluster and without a model: ps in separate processes or in this one, and replicas that push."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Self

import numpy as np
from threadpoolctl import threadpool_limits

from psflow import Dataset, GradientDescent, PsListening, RunConfig, TrainSpec
from psflow.ps_runtime.checkpoint.job_file import Owner
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.client.checkpoints import SavingClient
from psflow.ps_runtime.client.shard_client import Connect, Identity, ShardClients, never_stop
from psflow.ps_runtime.client.training import TrainingClient
from psflow.ps_runtime.cluster.own_security import new_pem
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import Handler, Kind, Message, Purpose, Reply
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.roles.ps import PsParts, run_ps
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.roles import Role, RoleId, job_roles
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec
from psflow.ps_runtime.transport.base import Connection
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.in_process import InProcessServer
from psflow.ps_runtime.transport.listeners import Address

__all__ = ["LocalJob", "PsProcess", "Pushers", "bare_job", "give_values", "open_shards"]

TIMEOUT_SECS = 60.0
BATCH_SIZE = 100
NUM_RECORDS = 100_000
ITEM_BYTES = 4


def bare_job(shard_nbytes: int, num_ps: int, num_replicas: int) -> JobSpec:
    """Return a job with a vector of float32 of `shard_nbytes` on each ps, gradient descent, and no model_fn."""
    shape = (shard_nbytes // ITEM_BYTES,)
    variables = tuple(VariableSpec(f"w{i}", shape, "float32", optimizer=0) for i in range(num_ps))
    rule = GradientDescent(learning_rate=math.nan)
    return JobSpec(
        job_id="bench-scaling",
        token="",
        attempt=1,
        model_dir="",
        owner=Owner(ProcessId.current(), "", 0.0),
        model_fn=bare_job,
        params={},
        config=RunConfig(save_checkpoints_secs=None),
        train_spec=TrainSpec(Dataset),
        eval_specs=(),
        model=ModelSpec(variables, (rule.config(),)),
        optimizers=(rule,),
        input=InputSpec(NUM_RECORDS, BATCH_SIZE, num_epochs=None),
        seed=1,
        num_ps=num_ps,
        num_workers=num_replicas - 1,
        certificate=new_pem(),
    )


def open_shards(job: JobSpec, connect_functions: Sequence[Connect], purpose: Purpose, replica: int) -> ShardClients:
    """Return clients of all shards of a bare job, to be entered."""
    role = job_roles(job.num_ps, job.num_workers, evaluator=False)[job.num_ps + replica]
    identity = Identity(job.job_id, job.token, job.model.digest, str(role), purpose, replica, job.attempt)
    return ShardClients(connect_functions, identity, never_stop, TIMEOUT_SECS)


def give_values(job: JobSpec, connect_functions: Sequence[Connect]) -> None:
    """Give all variables the value 0 and open the job, as its chief does."""
    with open_shards(job, connect_functions, Purpose.SAVE, 0) as shards:
        saving = SavingClient(shards, job.model, TIMEOUT_SECS)
        saving.initialize({v.name: np.zeros(v.shape, v.dtype) for v in job.model.variables})
        saving.open()


class Pushers:
    """Training replicas that compute nothing: they pull, and push the same gradient each time, all at once.

    Parameters
    ----------
    job : JobSpec
        What all roles of the job are given alike.
    shards : sequence of ShardClients
        Of each replica; opened.
    """

    def __init__(self, job: JobSpec, shards: Sequence[ShardClients]) -> None:
        self._clients = [TrainingClient(each, job.model, TIMEOUT_SECS) for each in shards]
        self._gradients = {v.name: np.full(v.shape, 1e-6, v.dtype) for v in job.model.variables}
        for client in self._clients:
            client.next_grant()

    def __len__(self) -> int:
        return len(self._clients)

    def pull(self) -> list[tuple[int, ...]]:
        """Have each pull all parameters; return the versions of the shards that each has."""
        for client in self._clients:
            client.start_pull()
        return [client.finish_pull() for client in self._clients]

    def step(self) -> None:
        """Have each pull, push, and wait for its next ticket."""
        for client, versions in zip(self._clients, self.pull(), strict=True):
            client.start_push(self._gradients, [1.0], BATCH_SIZE, versions)
        for client in self._clients:
            client.finish_push()


class PsProcess:
    """One ps in a process of its own; it ends with `close`, or with this process.

    Parameters
    ----------
    job : JobSpec
        What all roles of the job are given alike.
    index : int
        Which ps of the job it is.
    """

    def __init__(self, job: JobSpec, index: int) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawning.Pipe()
        self._name = f"ps-{index}"
        self._process = spawning.Process(target=_serve, args=(job, index, theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process.pid is not None
        return self._process.pid

    def address(self) -> Address:
        """Wait until it listens; return where. To be called once.

        Raises
        ------
        WaitTimeoutError
            If the process does not say where it listens.
        EOFError
            If it ended instead; why stands on stderr.
        """
        if not self._pipe.poll(TIMEOUT_SECS):
            raise WaitTimeoutError(self._name, "start listening", TIMEOUT_SECS)
        event: PsListening = self._pipe.recv()
        return event.address

    @staticmethod
    def connect_function(job: JobSpec, address: Address, transport: str) -> Connect:
        """Return what connects to an address of a job by one transport."""
        return partial(connect, address, transport, certificate=job.certificate)

    def close(self) -> None:
        """End it and wait for it. Idempotent."""
        self._pipe.close()
        self._process.join(TIMEOUT_SECS)


def _serve(job: JobSpec, index: int, pipe: Pipe) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end of the pipe then closes

    def check() -> None:
        if pipe.poll():
            raise StoppedError(f"ps-{index}", "the measurement is over")

    with contextlib.suppress(StoppedError), threadpool_limits(limits=1):  # as a role on a cluster
        run_ps(job, RoleContext(RoleId(Role.PS, index), job.attempt, check, pipe.send), "127.0.0.1", is_alone=False)


class LocalJob:
    """The ps of a bare job in this process and its replicas, for the time of a ``with`` block.

    Parameters
    ----------
    shard_nbytes, num_ps, num_replicas : int
        Bytes of each shard, and how many ps and replicas there are.
    """

    def __init__(self, shard_nbytes: int, num_ps: int, num_replicas: int) -> None:
        self._job = bare_job(shard_nbytes, num_ps, num_replicas)
        self._num_replicas = num_replicas
        self._resources = ExitStack()
        self._servers: list[InProcessServer] = []
        self._handlers: list[_TimedHandler] = []
        self.pushers: Pushers

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for index in range(self._job.num_ps):
                parts = PsParts(self._job, index, partial(self._post, index))
                stack.callback(parts.close)
                self._handlers.append(_TimedHandler(parts.handler))
                self._servers.append(stack.enter_context(InProcessServer(self._handlers[-1])))
            connect_functions = [partial(self._connect, index) for index in range(self._job.num_ps)]
            give_values(self._job, connect_functions)
            shards = [
                open_shards(self._job, connect_functions, Purpose.TRAIN, replica)
                for replica in range(self._num_replicas)
            ]
            self.pushers = Pushers(self._job, [stack.enter_context(each) for each in shards])
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    @property
    def handler_secs(self) -> list[float]:
        """CPU seconds that the handler of each ps has used for pulls and pushes."""
        return [handler.secs for handler in self._handlers]

    def _post(self, index: int, event: Callable[[], Iterable[Reply]]) -> None:
        self._servers[index].post(event)

    def _connect(self, index: int, timeout_secs: float) -> Connection:
        return self._servers[index].connect(f"ps-{index}")


class _TimedHandler:
    """A handler, and the CPU seconds that it has used for pulls and pushes."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.secs = 0.0
        self.disconnected = handler.disconnected
        self.max_body_bytes = handler.max_body_bytes

    def handle(self, peer: int, message: Message) -> Iterable[Reply]:
        """Hand a message on."""
        if message.kind not in (Kind.PULL, Kind.PUSH):
            return self._handler.handle(peer, message)
        started = time.thread_time()
        replies = self._handler.handle(peer, message)
        self.secs += time.thread_time() - started
        return replies
