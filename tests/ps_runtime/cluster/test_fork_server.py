"""The workers of a local cluster: copies of a process that is ready, which end with the one that wants them."""

from __future__ import annotations

import json
import multiprocessing.forkserver
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import pytest
from distributed import Client
from threadpoolctl import threadpool_info

from psflow.ps_runtime.cluster.connecting import LOCAL_CLUSTER, open_cluster
from psflow.ps_runtime.cluster.own_security import own_security
from psflow.ps_runtime.scratch import scratch_directory
from tests.leak_guard import no_leaks
from tests.limits import HANG_SECS

pytestmark = pytest.mark.cluster(shared=True)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with no_leaks(), open_cluster(None, 2, 300) as client:
        yield client


def test_the_process_that_is_copied_has_one_thread(client: Client) -> None:
    server: Any = multiprocessing.forkserver._forkserver
    assert psutil.Process(server._forkserver_pid).num_threads() == 1


def test_workers_have_imported_what_roles_need(client: Client) -> None:
    imported = client.run(lambda: ("psflow.ps_runtime.cluster.role_task" in sys.modules, "pandas" in sys.modules))
    assert list(imported.values()) == [(True, False)] * 2


def test_settings_reach_the_workers(client: Client) -> None:
    settings = {name: value for name, value in LOCAL_CLUSTER.items() if value is not None}
    assert list(client.run(lambda: {name: dask.config.get(name) for name in settings}).values()) == [settings] * 2
    assert set(client.run(os.environ.get, "MALLOC_TRIM_THRESHOLD_").values()) == {None}
    assert all(info["num_threads"] == 1 for infos in client.run(threadpool_info).values() for info in infos)


def test_workers_leave_signals_to_the_owner(client: Client) -> None:
    handlers = client.run(lambda: {signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)})
    assert list(handlers.values()) == [{signal.SIG_IGN}] * 2


def test_copies_draw_different_random_numbers(client: Client) -> None:
    drawn = client.run(lambda: float(np.random.random()))
    assert len(set(drawn.values())) == 2


def first_bytes(port: int, context: ssl.SSLContext | None) -> bytes:
    """Return what a listener sends to one that asks for a page; b"" if it ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=100) as connection, suppress(OSError):
        stream = connection if context is None else context.wrap_socket(connection)
        stream.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return stream.recv(100)
    return b""


def listening(processes: Sequence[psutil.Process]) -> set[int]:
    pids = {process.pid for process in processes}
    return {c.laddr.port for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.pid in pids}


def test_it_listens_to_its_members_only(client: Client) -> None:
    security: Any = client.security
    workers = client.scheduler_info(n_workers=-1)["workers"]
    of_workers = {int(address.rpartition(":")[2]) for address in workers}
    addresses = [client.scheduler.address, *(worker["nanny"] for worker in workers.values())]  # type: ignore[union-attr]
    ports = of_workers | {int(address.rpartition(":")[2]) for address in addresses}
    owner = psutil.Process()
    assert len(ports) == 5
    assert listening([psutil.Process(pid) for pid in client.run(os.getpid).values()]) == of_workers
    assert ports - of_workers <= listening([owner])
    member = security.get_connection_args("client")["ssl_context"]
    assert b"" not in {first_bytes(port, member) for port in ports}
    foreign = own_security().get_connection_args("client")["ssl_context"]
    foreign.verify_mode = ssl.CERT_NONE  # as somebody who does not mind whom he talks to
    nameless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nameless.check_hostname, nameless.verify_mode = False, ssl.CERT_NONE
    assert {first_bytes(port, context) for port in ports for context in (foreign, nameless)} == {b""}
    assert not any(b"HTTP" in first_bytes(port, None) for port in ports)


def test_no_process_tells_its_key(client: Client) -> None:
    owner = psutil.Process()
    told = [*(" ".join(process.cmdline()) for process in owner.children(recursive=True)), str(client.security)]
    told += [str(process.environ()) for process in owner.children(recursive=True)]
    assert not any("PRIVATE KEY" in text for text in told)


OWNER = """
import os, signal, sys
if __name__ == "__main__":
    import multiprocessing.forkserver
    from multiprocessing import resource_tracker
    from psflow.ps_runtime.cluster.connecting import open_cluster
    from psflow.ps_runtime.cluster.fork_server import shared_scratch

    with open_cluster(None, 2, 300) as client:
        pids = [multiprocessing.forkserver._forkserver._forkserver_pid, *client.run(os.getpid).values()]
        print(shared_scratch(), *pids, flush=True)
        if sys.argv[1:] == ["tracker"]:
            os.kill(resource_tracker._resource_tracker._pid, signal.SIGKILL)
        os.kill(0 if sys.argv[1:] == ["all"] else os.getpid(), signal.SIGKILL)
"""


HASTY = """
import multiprocessing, os, signal
from multiprocessing import forkserver
from psflow.ps_runtime.cluster.fork_server import start_fork_server, stop_fork_server

start_fork_server()
pid = forkserver._forkserver._forkserver_pid
os.kill(pid, signal.SIGINT)  # it has not even begun to import
process = multiprocessing.get_context("forkserver").Process(target=print, args=("alive",))
process.start()
process.join()
assert forkserver._forkserver._forkserver_pid == pid
stop_fork_server()
"""


def test_an_early_signal_is_left_to_the_owner_too() -> None:
    done = subprocess.run([sys.executable, "-c", HASTY], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("alive\n", "")


PROGRAM = """
import json, os, sys
from psflow.ps_runtime.cluster.connecting import open_cluster

class Mark:
    def __init__(self, pid):
        self.pid = pid

def marks():
    return [Mark(os.getpid()), hasattr(sys.modules["__main__"], "Mark")]

with open_cluster(None, 1, 300) as client:
    [(mark, is_imported)] = client.run(marks).values()
print(json.dumps([isinstance(mark, Mark), mark.pid != os.getpid(), is_imported]))
"""


def test_workers_leave_the_program_of_their_owner_alone_which_needs_no_guard(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, tmp_path / "mine.py"], stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(done.stdout) == [True, True, False]


@pytest.mark.parametrize(("is_long", "killed"), [(False, []), (True, []), (False, ["tracker"])])
def test_all_of_them_end_when_their_owner_is_killed_and_leave_no_file(
    tmp_path_factory: pytest.TempPathFactory, is_long: bool, killed: list[str]
) -> None:
    """A directory may have a longer name than a socket can have."""
    directory = tmp_path_factory.mktemp("long" * 20 if is_long else "tmp")
    environment = {**os.environ, "TMPDIR": str(directory)}
    owner = subprocess.run(
        [sys.executable, "-c", OWNER, *killed], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    scratch, *numbers = owner.stdout.split()
    pids = [int(number) for number in numbers]
    assert len(pids) == 3
    assert Path(scratch).parent == (Path("/tmp") if is_long else directory)
    assert psutil.wait_procs(running(pids), timeout=200)[1] == []
    assert not Path(scratch).exists()
    assert semaphores(Path(scratch)) == []
    assert list(directory.iterdir()) == []


UNREADY = """
import multiprocessing, os, signal, sys, threading
from multiprocessing import forkserver
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.fork_server import start_fork_server
from psflow.ps_runtime.errors import ClusterError

def pass_the_queue():
    process = multiprocessing.get_context("forkserver").Process(target=str)
    process.start()
    process.join()

def start(thread, start=threading.Thread.start):
    if "watch process join" in thread.name:
        raise RuntimeError("can't start new thread")
    start(thread)

start_fork_server()
pid = forkserver._forkserver._forkserver_pid
if sys.argv[1:] == ["stopped"]:
    os.kill(pid, signal.SIGSTOP)
else:
    pass_the_queue()
    threading.Thread.start = start
try:
    with open_cluster(None, 2, 1.0):
        print("there")
except ClusterError as error:
    print(error)
os.kill(pid, signal.SIGCONT)
pass_the_queue()
"""


@pytest.mark.parametrize("cause", ["stopped", "without threads"])
def test_a_cluster_that_does_not_start_leaves_a_sentence_and_no_process(cause: str) -> None:
    """Copies may begin after their owner has given them up, and Dask may lose sight of one that it has started."""
    command = [sys.executable, "-c", UNREADY, cause]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_SECS)
    assert done.stderr == ""
    assert done.stdout.startswith("a Dask cluster of 2 workers did not start on this machine: a worker process ")
    assert done.stdout.count("\n") == 1


def running(pids: Iterable[int]) -> list[psutil.Process]:
    """Return those of the processes that run; each of them may be about to end."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def semaphores(scratch: Path) -> list[Path]:
    return list(Path("/dev/shm").glob(f"sem.{scratch.name}-*"))


def test_what_they_leave_when_all_of_them_are_killed_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = subprocess.run(
        [sys.executable, "-c", OWNER, "all"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        start_new_session=True,
    )
    scratch, *pids = owner.stdout.split()
    psutil.wait_procs(running(map(int, pids)), timeout=HANG_SECS)
    assert Path(scratch).is_dir()
    assert semaphores(Path(scratch)) != []
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(tempfile, "tempdir", str(Path(scratch).parent))
        with scratch_directory():
            assert not Path(scratch).exists()
    assert semaphores(Path(scratch)) == []
