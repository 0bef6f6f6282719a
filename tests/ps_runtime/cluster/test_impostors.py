"""Who has another key than a chief and its processes gets nothing of them, however alike the certificates look."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed import Security

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster import worker_process
from psflow.ps_runtime.cluster.certificate_file import kept_certificate
from psflow.ps_runtime.cluster.chief_process import open_manual_cluster
from psflow.ps_runtime.cluster.own_security import new_pem, security_of
from psflow.ps_runtime.cluster.worker_process import OwnProgram, join_manual_cluster
from psflow.ps_runtime.errors import LostDirectoryError
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses
from psflow.ps_runtime.specs.roles import RoleId
from tests.free_ports import free_address
from tests.limits import HANG_SECS

PS, CHIEF = map(RoleId.parse, ("ps-0", "chief-0"))


@pytest.fixture
def cluster() -> ClusterAddresses:
    return ClusterAddresses(free_address(), ps=(free_address(),))


def trusting(context: ssl.SSLContext) -> ssl.SSLContext:
    """Have somebody talk to any peer at all."""
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def impostor_context(role: str) -> ssl.SSLContext:
    """Return what one has who shows a certificate of the right subject, of a key of its own."""
    arguments = security_of(new_pem())
    get = arguments.get_listen_args if role == "scheduler" else arguments.get_connection_args
    context: ssl.SSLContext = get(role)["ssl_context"]
    return trusting(context)


@contextmanager
def impostor(address: str, *, is_older: bool) -> Iterator[list[bytes]]:
    """Listen at the address of a chief with a certificate that looks like its own; give what is heard after TLS."""
    host, _, port = address.rpartition(":")
    context, heard = impostor_context("scheduler"), [b""]
    if is_older:
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_server((host, int(port))) as server, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            with contextlib.suppress(OSError):  # the end of the block
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(ssl.SSLError, ConnectionError):
                        connection.settimeout(HANG_SECS)
                        stream = context.wrap_socket(connection, server_side=True)
                        heard.append(stream.recv(1 << 16))

        pool.submit(serve)
        try:
            yield heard
        finally:
            server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("is_older", [False, True], ids=["TLS 1.3", "TLS 1.2"])
@pytest.mark.parametrize("left", ["no certificate", "another certificate"])
def test_a_process_tells_an_impostor_at_the_address_of_the_chief_nothing(
    cluster: ClusterAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, is_older: bool
) -> None:
    monkeypatch.setattr(worker_process, "APART_SECS", 0.0)
    keep = kept_certificate(str(tmp_path), new_pem()) if left != "no certificate" else contextlib.nullcontext()
    words = (
        rf"^{tmp_path}: the chief at {cluster.chief} is there, but ps-0 on {socket.gethostname()} finds {left} of it "
        r"in tls/; use a directory that all hosts see .*; if all hosts see this one, the chief of another job listens "
        r"there: "
    )
    with (
        impostor(cluster.chief, is_older=is_older) as heard,
        keep,
        pytest.raises(LostDirectoryError, match=words),
    ):
        join_manual_cluster(cluster, PS, str(tmp_path), OwnProgram({"secret": "fact"}), lambda event: None, HANG_SECS)
    assert set(heard) == {b""}


def answer(port: int, context: ssl.SSLContext) -> bytes:
    """Return what a listener sends to one that asks for a page, which is no message of Dask; b"" if it ends it."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_SECS) as connection, contextlib.suppress(OSError):
        stream = context.wrap_socket(connection)
        stream.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return stream.recv(100)
    return b""


@pytest.mark.cluster
def test_a_chief_and_its_processes_tell_a_member_of_another_cluster_nothing(
    cluster: ClusterAddresses, tmp_path: Path
) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        open_manual_cluster(cluster, str(tmp_path), {}, evaluator=False, on_event=lambda event: None) as led,
    ):
        joins = pool.submit(
            join_manual_cluster, cluster, PS, str(tmp_path), OwnProgram(), lambda event: None, HANG_SECS
        )
        slots = led.await_processes(HANG_SECS, never_stop)
        ports = [int(address.rpartition(":")[2]) for address in (cluster.chief, slots[PS], slots[CHIEF])]
        security = led.client.security
        assert isinstance(security, Security)
        member = trusting(security.get_connection_args("worker")["ssl_context"])
        assert all(answer(port, member) for port in ports)
        assert [answer(port, impostor_context("worker")) for port in ports] == [b"", b"", b""]
        assert len(led.await_processes(0.0, never_stop)) == 2
    assert joins.result(HANG_SECS) is None
