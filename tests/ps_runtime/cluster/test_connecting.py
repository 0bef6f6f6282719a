"""A cluster of our own leaves no process behind, however its end ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import connecting as module

pytestmark = pytest.mark.process


class Cluster:
    """What is known here of a SpecCluster with one worker; who closes it is interrupted."""

    def __init__(self, process: subprocess.Popen[bytes], failure: BaseException) -> None:
        self.failure = failure
        self.loop = SimpleNamespace(add_callback=lambda callback: None, handlers={})
        self.periodic_callbacks: dict[str, object] = {}
        self.worker_spec: dict[int, object] = {0: {}}
        self.workers = {0: SimpleNamespace(pid=process.pid, close=None)}

    def close(self, timeout: float) -> None:
        raise self.failure


@pytest.mark.parametrize("kind", [KeyboardInterrupt, OSError])
def test_workers_of_a_cluster_whose_end_is_not_waited_for_are_killed(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        cluster: Any = Cluster(process, kind())
        monkeypatch.setattr(module, "SpecCluster", lambda **options: cluster)
        try:
            with pytest.raises(kind), module._local_cluster(1, "", 10.0):
                pass
            assert cluster not in module._open
            assert cluster.worker_spec == {}
        finally:
            process.communicate()  # one that was not killed reads the end of its input
    assert process.returncode == -signal.SIGKILL


LIMITED = """
import resource, sys
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.errors import UsageError

soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    with open_cluster(None, 2) as client:
        print(len(client.nthreads()))
except UsageError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("soft", "hard", "printed"),
    [
        (64, 64, "a Dask cluster of 2 workers needs 88 open files, but a process may open 64 here; raise the hard"),
        (64, 88, "2"),
    ],
)
def test_a_limit_of_open_files_is_raised_as_far_as_that_goes(soft: int, hard: int, printed: str) -> None:
    command = [sys.executable, "-c", LIMITED, str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(printed), done.stderr
    assert done.stderr == ""


def test_a_scheduler_without_tls_is_warned_of_once_and_one_with_it_never(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_warned", set())
    for address in ["tcp://127.0.0.1:1", "tcp://127.0.0.1:1", "tls://127.0.0.1:2", "inproc://3", "tcp://127.0.0.1:4"]:
        client: Any = SimpleNamespace(scheduler=SimpleNamespace(address=address))
        module.warn_of_tls(client)
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        f"the Dask scheduler at tcp://127.0.0.1:{port} has no TLS: anyone who can connect to it can run code as the "
        "owner of its workers, and anyone who can read its traffic gets the key that encrypts variables and gradients"
        for port in (1, 4)
    ]
