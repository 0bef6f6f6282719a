"""A wrong TF_CONFIG in one process or in all: each process ends with a sentence."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.free_ports import free_port

pytestmark = [pytest.mark.piece(number=6), pytest.mark.timeout(1800), pytest.mark.cluster]

LIMIT_SECS = 300.0
"""For a process that hangs: each waits 40 s for the others, and starts several times as slowly on a busy machine."""
NUM_AT_A_TIME = 8
"""Cases: most of their processes wait for each other."""
IN_CI = (
    "bad_json_in_the_worker",
    "an_unknown_role_of_the_task",
    "an_index_out_of_range",
    "a_worker_that_is_started_twice_and_another_that_is_not",
    "workers_in_another_order",
    "a_taken_port_of_the_chief",
    "no_ps",
    "a_worker_that_never_comes",
)
"""A case of each kind of fault."""

PROGRAM = """
import sys
import numpy as np
import psflow as tf

def input_fn():
    return tf.Dataset({"x": np.ones((64, 1), np.float32)}, np.ones((64, 1), np.float32)).batch(8).repeat()

def model_fn(features, labels, mode):
    w = tf.get_variable("w", (1, 1))
    error = features["x"] @ w - labels
    gradients = {"w": (features["x"].T @ error / len(error)).astype(np.float32)}
    train_op = tf.GradientDescent(0.1).apply_gradients(gradients)
    return tf.EstimatorSpec(mode, loss=float((error**2).mean()), train_op=train_op)

if __name__ == "__main__":
    config = tf.RunConfig(sys.argv[1], save_checkpoints_steps=20)
    train_spec = tf.TrainSpec(input_fn, max_steps=40)
    eval_spec = tf.EvalSpec(input_fn, steps=2, start_delay_secs=0, throttle_secs=0)
    tf.train_and_evaluate(tf.Estimator(model_fn, config=config), train_spec, eval_spec)
"""

Cluster = dict[str, Any]


class Started(NamedTuple):
    """What a process of a case is started with."""

    tf_config: str
    model_dir: str = "model"


class Ended(NamedTuple):
    """How it ended."""

    exit_code: int | None
    """None: not at all."""
    secs: float
    said: str
    """The last error, in a line."""


Processes = dict[str, Started]
MakeCase = Callable[["Addresses"], Processes]
CASES: dict[str, tuple[str, MakeCase]] = {}
"""By name: what one of the processes says, and all of them."""


class Addresses:
    """Addresses on this machine of which each is given once."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def free(self) -> str:
        """Return one at which nobody listens."""
        return f"127.0.0.1:{free_port()}"

    def taken(self) -> str:
        """Return one at which somebody listens."""
        self._held.append(socket.create_server(("127.0.0.1", 0)))
        return f"127.0.0.1:{self._held[-1].getsockname()[1]}"

    def cluster(self, num_workers: int = 1, **changed: list[Any]) -> Cluster:
        """Return a chief, workers and a ps."""
        free = {"chief": 1, "worker": num_workers, "ps": 1}
        return {role: [self.free() for _ in range(number)] for role, number in free.items()} | changed

    def close(self) -> None:
        """Let go of all."""
        for one in self._held:
            one.close()


def text(cluster: Any, role: Any, index: Any = 0, **more: Any) -> str:
    """Return a TF_CONFIG."""
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}, **more})


def places(cluster: Cluster) -> list[tuple[str, int]]:
    """Return the roles of a cluster, and an evaluator that is in none."""
    return [(role, index) for role, found in cluster.items() for index in range(len(found))] + [("evaluator", 0)]


def processes(cluster: Cluster, **changed: str | Started) -> Processes:
    """Return a process for each role of a cluster; `changed` has those with another TF_CONFIG, ``worker_0`` say."""
    right = {f"{role}_{index}": Started(text(cluster, role, index)) for role, index in places(cluster)}
    return right | {name: Started(new) if isinstance(new, str) else new for name, new in changed.items()}


def case(says: str) -> Callable[[MakeCase], MakeCase]:
    """Register a case, and what one of its processes says (a pattern)."""

    def register(make: MakeCase) -> MakeCase:
        CASES[make.__name__] = (says, make)
        return make

    return register


@case(r"TF_CONFIG should be a JSON object, got .*: Expecting ',' delimiter")
def bad_json_in_the_worker(some: Addresses) -> Processes:
    cluster = some.cluster()
    return processes(cluster, worker_0=text(cluster, "worker")[:-1])


@case(r"TF_CONFIG should be a JSON object, got ")
def bad_json_in_the_chief(some: Addresses) -> Processes:
    cluster = some.cluster()
    return processes(cluster, chief_0=text(cluster, "chief")[:-1])


@case(r"TF_CONFIG should be a JSON object, got ")
def bad_json_everywhere(some: Addresses) -> Processes:
    cluster = some.cluster()
    return {name: Started(one.tf_config[:-1]) for name, one in processes(cluster).items()}


@case(r"cluster\.wroker: expected one of .*; did you mean 'worker'\?")
def an_unknown_role_in_the_cluster(some: Addresses) -> Processes:
    return processes(some.cluster() | {"wroker": [some.free()]})


@case(r"task\.type should be one of .*, got 'wroker'; did you mean 'worker'\?")
def an_unknown_role_of_the_task(some: Addresses) -> Processes:
    cluster = some.cluster()
    return processes(cluster, worker_0=text(cluster, "wroker"))


@case(r"task\.index should be 0, as cluster\.worker has 1 address, got 1")
def an_index_out_of_range(some: Addresses) -> Processes:
    cluster = some.cluster()
    return processes(cluster, worker_0=text(cluster, "worker", 1))


@case(r"task\.index should be 0, as cluster\.ps has 1 address, got -1")
def a_negative_index_of_the_ps(some: Addresses) -> Processes:
    cluster = some.cluster()
    return processes(cluster, ps_0=text(cluster, "ps", -1))


@case(r"task\.index should be from 0 to 1, as cluster\.worker has 2 addresses, got 2")
def workers_counted_from_one(some: Addresses) -> Processes:
    cluster = some.cluster(2)
    return processes(cluster, worker_0=text(cluster, "worker", 1), worker_1=text(cluster, "worker", 2))


@case(r"cluster\.chief should have one address, got 2: ")
def two_chiefs_in_the_cluster(some: Addresses) -> Processes:
    cluster = some.cluster()
    return processes(cluster | {"chief": [some.free(), some.free()]})


@case(r"worker-0 has joined the chief at .* already; start each process once|listens there")
def a_worker_that_is_started_twice_and_another_that_is_not(some: Addresses) -> Processes:
    cluster = some.cluster(2)
    return processes(cluster, worker_1=text(cluster, "worker", 0))


@case(r"cluster\.evaluator should have one address, got 2: ")
def two_evaluators_in_the_cluster(some: Addresses) -> Processes:
    return processes(some.cluster(evaluator=[some.free(), some.free()]))


@case(r"task\.index should be 0, as cluster\.worker has 1 address, got 1")
def an_own_address_that_is_missing(some: Addresses) -> Processes:
    cluster = some.cluster(2)
    return processes(cluster, worker_1=text(cluster | {"worker": cluster["worker"][:1]}, "worker", 1))


@case(r"cluster\.worker is .*, but .* for the chief at .*; give all processes the same")
def workers_in_another_order(some: Addresses) -> Processes:
    cluster = some.cluster(2)
    return processes(cluster, worker_1=text(cluster | {"worker": cluster["worker"][::-1]}, "worker", 1))


@case(r"the chief at .* did not answer within 40 s: ")
def a_chief_at_another_address(some: Addresses) -> Processes:
    cluster = some.cluster()
    return processes(cluster, chief_0=text(cluster | {"chief": [some.free()]}, "chief"))


@case(
    r"worker-0 cannot listen at .*: (another process|process \d+ \(.*\)) listens there; end it, or choose another port"
)
def a_taken_port_of_the_worker(some: Addresses) -> Processes:
    return processes(some.cluster(worker=[some.taken()]))


@case(
    r"the chief cannot listen at .*: (another process|process \d+ \(.*\)) listens there; end it, or choose another port"
)
def a_taken_port_of_the_chief(some: Addresses) -> Processes:
    return processes(some.cluster(chief=[some.taken()]))


@case(r"/other: the chief at .* is there, but worker-0 on .* finds no certificate of it in tls/; use a directory ")
def another_model_dir_in_the_worker(some: Addresses) -> Processes:
    cluster = some.cluster()
    return processes(cluster, worker_0=Started(text(cluster, "worker"), "other"))


@case(r"model_dir is 'model', but TF_CONFIG has 'elsewhere'; give only one")
def two_model_dirs_in_one_process(some: Addresses) -> Processes:
    cluster = some.cluster()
    return processes(cluster, ps_0=text(cluster, "ps", model_dir="elsewhere"))


@case(r"the cluster has no ps; add one")
def no_ps(some: Addresses) -> Processes:
    cluster = some.cluster()
    del cluster["ps"]
    return processes(cluster)


@case(r"each process needs an address of its own")
def one_address_for_two(some: Addresses) -> Processes:
    cluster = some.cluster()
    return processes(cluster | {"worker": cluster["ps"]})


@case(r"this process is a client, which is not a role of a job; start each role of its cluster")
def a_client_for_the_worker(some: Addresses) -> Processes:
    cluster = some.cluster()
    return processes(cluster, worker_0=text(cluster, "client"))


@case(r"no-such-host\.invalid")
def a_chief_on_a_host_that_nobody_knows(some: Addresses) -> Processes:
    return processes(some.cluster(chief=["no-such-host.invalid:2222"]))


@case(r"worker-0 \(.*\) did not join the chief within 40 s: start it, with the cluster of this process")
def a_worker_that_never_comes(some: Addresses) -> Processes:
    started = processes(some.cluster())
    del started["worker_0"]
    return started


def run(name: str, directory: Path) -> tuple[dict[str, Ended], bool]:
    """Start the processes of a case; return how they ended, and whether the certificate was left behind."""
    addresses = Addresses()
    started = CASES[name][1](addresses)
    (directory / "main.py").write_text(PROGRAM)
    environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"} | {"TMPDIR": str(directory)}
    running = {}
    for process, one in started.items():
        with open(directory / f"{process}.err", "wb") as err:
            command = [sys.executable, "main.py", one.model_dir]
            running[process] = subprocess.Popen(
                command, cwd=directory, env=environment | {"TF_CONFIG": one.tf_config}, stdout=err, stderr=err
            )
    try:
        ended = _ends(running, directory)
    finally:
        for left in running.values():
            left.kill()
            left.wait()
        addresses.close()
    return ended, (directory / "model" / "tls").exists()


def _ends(running: Mapping[str, subprocess.Popen[bytes]], directory: Path) -> dict[str, Ended]:
    start = time.monotonic()
    secs: dict[str, float] = {}
    while len(secs) < len(running) and time.monotonic() - start < LIMIT_SECS:
        for name, process in running.items():
            if name not in secs and process.poll() is not None:
                secs[name] = time.monotonic() - start
        time.sleep(0.05)
    said = {name: _last_error((directory / f"{name}.err").read_text()) for name in running}
    return {name: Ended(process.poll(), secs.get(name, LIMIT_SECS), said[name]) for name, process in running.items()}


def _last_error(text: str) -> str:
    """Return what was raised last, or all of `text` if nothing was: an error may have several faults, a line each."""
    start = text.rfind("\npsflow.ps_runtime.errors.")
    return "; ".join(text[start + 1 :].strip().splitlines())


@pytest.fixture(scope="module", autouse=True)
def _interruptible() -> Iterator[None]:
    """Have processes take SIGINT as in a terminal: in the background it is ignored, and so it is by children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def ends(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[dict[str, Ended], bool]]:
    """Return what became of the cases that are selected, some of which ran at a time."""
    tests = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    names = [test.callspec.params["name"] for test in tests]
    directories = [tmp_path_factory.mktemp("case") for _ in names]
    with ThreadPoolExecutor(NUM_AT_A_TIME) as pool:
        return dict(zip(names, pool.map(run, names, directories), strict=True))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.ci if name in IN_CI else ()) for name in CASES])
def test_each_process_ends_with_a_sentence(name: str, ends: dict[str, tuple[dict[str, Ended], bool]]) -> None:
    ended, is_left = ends[name]
    assert not is_left, "the certificate was left behind"
    for process, end in ended.items():
        assert end.exit_code == 1, (process, end)
        assert re.match(r"psflow\.ps_runtime\.errors\.\w+Error: \S+", end.said), (process, end)
    assert any(re.search(CASES[name][0], end.said) for end in ended.values()), ended
