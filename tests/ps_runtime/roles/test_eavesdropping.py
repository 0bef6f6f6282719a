"""What a program between a worker and a ps gets, and what it can do with that: nothing."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.client.shard_client import Identity, ShardClient, never_stop
from psflow.ps_runtime.cluster.own_security import new_pem
from psflow.ps_runtime.cluster.role_task import ps_connect
from psflow.ps_runtime.errors import IncarnationOverError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.hooks.base import SessionRunHook
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.optimizers import GradientDescent
from psflow.ps_runtime.protocol.message import Kind, Message, Purpose, encode_header
from psflow.ps_runtime.roles.chief import run_chief
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.roles.trainer import run_worker
from psflow.ps_runtime.specs.roles import Role
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.transport.tls import client_context
from tests.ps_runtime.estimator.regression import NUM_BATCHES, NUM_RECORDS, arrays_of, records
from tests.tasks.waiting import wait_until

SECS = 200.0
SIZE = 200
GRADIENT = np.random.default_rng(1).normal(size=SIZE).astype(np.float32)


def still(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """Learn so slowly that the weights keep their first bits."""
    w = get_variable("w", (SIZE,))
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"w": w})
    train_op = GradientDescent(learning_rate=1e-30).apply_gradients({"w": GRADIENT})
    return EstimatorSpec(mode, loss=np.float32(1), train_op=train_op)


class Meet(SessionRunHook):
    """Holds two replicas once each has made steps, until they are let go."""

    def __init__(self) -> None:
        self.are_there = threading.Barrier(3)
        self.may_go = threading.Event()
        self._num_steps: dict[int, int] = {}

    def after_run(self, run_context: Any, run_values: Any) -> None:
        thread = threading.get_ident()
        self._num_steps[thread] = self._num_steps.get(thread, 0) + 1
        if self._num_steps[thread] == 3:
            self.are_there.wait(SECS)
            assert self.may_go.wait(SECS)


class Tap:
    """Stands between a role and a ps, and records both directions."""

    def __init__(self, host: str, port: int) -> None:
        self._listener = socket.create_server((host, 0))
        self.port = self._listener.getsockname()[1]
        self._there = host, port
        self.sent, self.got = bytearray(), bytearray()
        self._threads = [threading.Thread(target=self._connect)]
        self._threads[0].start()

    def _connect(self) -> None:
        with suppress(OSError):  # nobody came
            role, _ = self._listener.accept()
            ps = socket.create_connection(self._there)
            self._threads.append(threading.Thread(target=self._copy, args=(ps, role, self.got)))
            self._threads[1].start()
            self._copy(role, ps, self.sent)

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket, record: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                record += data
                target.sendall(data)
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join(SECS)


def hang_up(sock: socket.socket, data: bytes) -> bytes:
    """Send to a ps and return what it answers until it hangs up."""
    answer = b""
    with suppress(ConnectionError, ssl.SSLError):
        sock.sendall(data)
        while more := sock.recv(65536):
            answer += more
    return answer


def over_tls(sock: socket.socket, context: ssl.SSLContext, data: bytes) -> bytes:
    """As `hang_up`, by a peer that trusts any ps."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with suppress(ConnectionError, ssl.SSLError), context.wrap_socket(sock) as peer:
        return hang_up(peer, data)
    return b""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_what_is_read_between_a_worker_and_a_ps_is_of_no_use(roles, tmp_path, stack):
    meet = Meet()
    estimator = Estimator(still, str(tmp_path), RunConfig(tf_random_seed=1))
    spec = TrainSpec(records, None, [meet])
    attempt = stack.enter_context(Attempt(estimator, spec, None, num_workers=1, transport="tcp"))
    job = replace(attempt.job(), certificate=new_pem())
    (ps,), (dial,) = roles.start_ps(job)
    [address] = roles.addresses
    tap = Tap(address.host, address.tcp_port)
    stack.callback(tap.close)
    stack.callback(meet.are_there.abort)
    stack.callback(meet.may_go.set)
    chief = roles.start(lambda: run_chief(job, roles.context(job, Role.CHIEF), [dial]))
    tapped = ps_connect(replace(address, tcp_port=tap.port), job, "ps-0")
    worker = roles.start(lambda: run_worker(job, roles.context(job, Role.WORKER), [tapped]))
    meet.are_there.wait(SECS)
    wait_until(lambda: CheckpointStore(str(tmp_path)).latest() == 0)

    recorded, weights = bytes(tap.sent + tap.got), arrays_of(str(tmp_path), 0)["w", None]
    assert len(tap.sent) > 3 * GRADIENT.nbytes
    assert len(tap.got) > 3 * len(weights)
    key = job.certificate.partition("-----BEGIN CERTIFICATE-----")[0]
    secrets = [job.token.encode(), job.job_id.encode(), *(line.encode() for line in key.splitlines()[1:-1])]
    for array in (weights, GRADIENT.tobytes()):
        secrets += [array[start : start + 16] for start in range(0, len(array), 16)]
    assert [secret for secret in secrets if secret in recorded] == []

    known = ShardClient(dial, Identity(job.job_id, job.token, job.model.digest, "known", Purpose.WATCH), never_stop)
    known.open(SECS)
    stack.callback(known.close)
    before = known.request(Message(Kind.STATISTICS), "count", SECS).json()
    attacks: list[Callable[[socket.socket], bytes]] = [
        lambda sock: hang_up(sock, bytes(tap.sent)),
        lambda sock: hang_up(sock, poison(job)),
        lambda sock: over_tls(sock, client_context(new_pem()), poison(job)),
        lambda sock: over_tls(sock, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), poison(job)),
    ]
    for attack in attacks:
        with socket.create_connection((address.host, address.tcp_port), SECS) as sock:
            answer = attack(sock)
            assert [secret for secret in secrets if secret in answer] == []
    assert known.request(Message(Kind.STATISTICS), "count", SECS).json() == before
    old = Identity(job.job_id, job.token, job.model.digest, "worker-0", Purpose.TRAIN, 1, job.attempt - 1)
    with pytest.raises(IncarnationOverError, match=r"incarnation 0 of worker-0 has ended"):
        ShardClient(dial, old, never_stop).open(SECS)

    meet.may_go.set()
    facts = chief.result(SECS)["statistics"]["job"]
    assert (facts["examples"], facts["global_step"], facts["misses"]) == (NUM_RECORDS, NUM_BATCHES, 0)
    assert worker.result(SECS)["exit"] == "finished"
    assert ps.result(SECS)["statistics"]["refused"] == len(attacks)


def poison(job: JobSpec) -> bytes:
    """Return what a stolen token was good for before: a HELLO of the worker, and a PUSH of its next gradient."""
    identity = Identity(job.job_id, job.token, job.model.digest, "worker-0", Purpose.TRAIN, 1, job.attempt)
    hello, push = identity.hello(), identity.sign(Message(Kind.PUSH, sequence=4, body=bytes(2048)))
    return b"".join(encode_header(each, len(each.body)) + bytes(each.body) for each in (hello, push))
