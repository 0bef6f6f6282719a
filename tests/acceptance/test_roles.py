"""One process for each role, as TF_CONFIG or flags say: migrated programs, and what becomes of one that is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.records import EvaluationLog, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from tests.free_ports import free_address

pytestmark = [pytest.mark.piece(number=2), pytest.mark.ci]

MIGRATED = Path(__file__).parents[2] / "examples" / "migrated"
PSFLOW = str(Path(sys.executable).with_name("psflow"))
TIMEOUT_SECS = 240.0
ROLES = ("ps", "worker", "evaluator", "chief")

PROGRAM = """
import logging
import sys
import psflow as tf
from model import MyEstimator

def rows():
    while True:
        yield {"x": 0.5}, 1.4

def input_fn():
    return tf.Dataset.from_generator(rows).batch(1)

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("psflow").setLevel(logging.DEBUG)
    patient = tf.StepDeadline(min_secs=60)  # else a worker that a busy machine stops for a second is lost
    config = tf.RunConfig("model", save_checkpoints_steps=20, step_deadline=patient)
    train_spec = tf.TrainSpec(input_fn, max_steps=int(sys.argv[1]))
    eval_spec = tf.EvalSpec(input_fn, steps=5, start_delay_secs=0, throttle_secs=0)
    reports = tf.train_and_evaluate(MyEstimator("model", config), train_spec, eval_spec)
    print(config.task_type, sorted(reports), sys.argv[2:])
"""


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Have processes take SIGINT as in a terminal: in the background it is ignored, and so it is by children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Started:
    """A process, and the files that it writes to: nobody reads them meanwhile."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def await_words(self, words: str, times: int = 1) -> None:
        deadline = time.monotonic() + TIMEOUT_SECS
        while self.err.read_text().count(words) < times:
            assert time.monotonic() < deadline, self.err.read_text()
            with pytest.raises(subprocess.TimeoutExpired):
                self.process.wait(0.1)

    def kill(self) -> int:
        self.process.kill()
        return self.process.wait()

    def end(self) -> tuple[int, str, str]:
        return self.process.wait(TIMEOUT_SECS), self.out.read_text(), self.err.read_text()


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Return what starts a process in a directory of its own, with ``model.py`` and ``main.py``; kill what is left."""
    started: list[Started] = []
    (tmp_path / "main.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(MIGRATED), "TMPDIR": str(tmp_path)}

    def run(*command: str, **settings: str) -> Started:
        logs = tmp_path_factory.mktemp("logs")
        with open(logs / "out", "wb") as out, open(logs / "err", "wb") as err:
            process = subprocess.Popen(command, cwd=tmp_path, env=environment | settings, stdout=out, stderr=err)
        started.append(Started(process, logs / "out", logs / "err"))
        return started[-1]

    yield run
    for one in started:
        one.kill()


def ends(processes: dict[str, Started]) -> dict[str, tuple[int, str, str]]:
    """Wait for processes; return the exit code of each, and what it has written."""
    return {name: started.end() for name, started in processes.items()}


def told(found: dict[str, tuple[int, str, str]]) -> str:
    """Return what processes have written to stderr, whole."""
    return "\n".join(f"{name}:\n{err}" for name, (_, _, err) in found.items())


def check_trained(model_dir: Path, last: int) -> None:
    finished = read_finished(str(model_dir))
    assert finished is not None
    assert finished.final_step == last
    assert EvaluationLog(str(model_dir)).read()[-1].global_step == last
    assert not (model_dir / "tls").exists()


def test_a_migrated_program_is_one_role_in_each_process(start: Start, tmp_path: Path) -> None:
    hosts = {kind: free_address() for kind in ("ps", "worker", "chief")}
    flags = [part for kind, address in hosts.items() for part in (f"--{kind}-hosts", address)]
    roles = {
        role: start(sys.executable, str(MIGRATED / "roles.py"), *flags, "--worker-type", role, "--worker-index", "0")
        for role in ROLES
    }
    found = ends(roles)
    assert {role: end[0] for role, end in found.items()} == dict.fromkeys(ROLES, 0), told(found)
    check_trained(tmp_path / "runs" / "migrated", 500)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["main.py", "runs"]


def test_flags_of_the_command_are_the_same(start: Start, tmp_path: Path) -> None:
    ps, workers = free_address(), [free_address(), free_address()]
    flags = ["--ps_hosts", ps, "--worker_hosts", ";".join(workers)]
    places = {"ps": ("ps", "0"), "chief": ("worker", "0"), "worker": ("worker", "1"), "evaluator": ("evaluator", "0")}
    roles = {
        role: start(PSFLOW, "role", *flags, "--job_name", name, "--task_index", index, "main.py", "60", "--json")
        for role, (name, index) in places.items()
    }
    found = ends(roles)
    reports = ["chief-0", "evaluator-0", "ps-0", "worker-0"]
    assert {role: (code, out) for role, (code, out, _) in found.items()} == {
        role: (0, f"{role} {reports if role == 'chief' else []} ['--json']\n") for role in places
    }, told(found)
    check_trained(tmp_path / "model", 60)


def started(start: Start, cluster: dict[str, list[str]], role: str, last: int, program: str = "main.py") -> Started:
    text = json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}})
    return start(sys.executable, program, str(last), TF_CONFIG=text)


LATE_PROGRAM = PROGRAM.replace(
    'if __name__ == "__main__":',
    """if __name__ == "__main__":
    print("imported", file=sys.stderr, flush=True)
    while not os.path.exists("gate"):
        time.sleep(0.01)""",
)


def test_processes_that_come_after_the_plan_has_failed_end_with_its_failure(start: Start, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(f"import os, time\n{LATE_PROGRAM}")
    (tmp_path / "wrong.py").write_text(PROGRAM.replace("def input_fn():", "def input_fn():\n    missing()"))
    cluster = {kind: [free_address()] for kind in ("ps", "worker", "chief")}
    late = {role: started(start, cluster, role, 9, "late.py") for role in ("ps", "worker")}
    for one in late.values():
        one.await_words("imported")
    chief = started(start, cluster, "chief", 9, "wrong.py")
    chief.await_words("the chief ends: it failed while it planned: ")
    (tmp_path / "gate").touch()
    found = ends({**late, "chief": chief})
    assert {role: code for role, (code, _, _) in found.items()} == {"ps": 1, "worker": 1, "chief": 1}, told(found)
    failure = r"__main__:input_fn raised NameError in train mode at \S+: name 'missing' is not defined"
    for role in late:
        words = rf"{role}-0 was stopped: the chief at \S+ ended the job: it failed while it planned: {failure}; see its"
        assert re.search(words, found[role][2]), told(found)


def test_a_killed_worker_that_is_started_again_joins_and_the_job_goes_on(start: Start, tmp_path: Path) -> None:
    cluster = {kind: [free_address()] for kind in ("ps", "worker", "chief")}
    roles = {role: started(start, cluster, role, 10**9) for role in ROLES}
    roles["worker"].await_words("made its first step")
    roles["evaluator"].await_words("Finished evaluation at step")  # before that it may not be part of the job yet
    assert [roles[role].kill() for role in ("worker", "evaluator")] == [-9, -9]
    again = {role: started(start, cluster, role, 10**9) for role in ("evaluator", "worker")}
    again["worker"].await_words("made its first step")
    again["evaluator"].await_words("Finished evaluation at step")
    roles["chief"].process.send_signal(signal.SIGINT)
    found = ends({**roles, **again})
    assert {role: end[0] for role, end in found.items()} == {"ps": 1, "worker": 1, "evaluator": 1, "chief": -2}
    assert "ended the job: it was interrupted (SIGINT)" in found["worker"][2]
    lost = re.findall(
        r"manual_cluster:(\S+) is lost: its Dask worker .* was lost; start its process", found["chief"][2]
    )
    assert sorted(lost) == ["evaluator-0", "worker-0"]


def test_a_killed_ps_that_is_started_again_lets_training_go_on_and_a_chief_that_is_told_to_end_leaves_nothing(
    start: Start, tmp_path: Path
) -> None:
    cluster = {kind: [free_address()] for kind in ("ps", "worker", "chief")}
    roles = {role: started(start, cluster, role, 10**9) for role in ROLES}
    roles["evaluator"].await_words("Finished evaluation at step 20")
    roles["ps"].kill()
    again = started(start, cluster, "ps", 10**9)
    again.await_words("listens at")
    roles["chief"].await_words("Restoring parameters from")
    roles["worker"].await_words("made its first step", times=2)
    assert (tmp_path / "model" / "tls").is_dir()
    roles["chief"].process.send_signal(signal.SIGTERM)
    found = ends({**roles, "ps": again})
    codes = {role: end[0] for role, end in found.items()}
    assert codes == {"ps": 1, "worker": 1, "evaluator": 1, "chief": 128 + signal.SIGTERM}
    assert "ended the job: it was terminated (SIGTERM)" in found["worker"][2]
    assert not (tmp_path / "model" / "tls").exists()
    assert re.findall(r"manual_cluster:(\S+) is lost: its Dask worker", found["chief"][2]) == ["ps-0"]


def test_after_a_killed_chief_the_same_commands_resume(start: Start, tmp_path: Path) -> None:
    cluster = {kind: [free_address()] for kind in ("ps", "worker", "chief")}
    roles = {role: started(start, cluster, role, 10**9) for role in ROLES}
    store = CheckpointStore(str(tmp_path / "model"))
    roles["evaluator"].await_words("Finished evaluation at step 20")
    roles["chief"].kill()
    found = ends(roles)
    assert {role: end[0] for role, end in found.items()} == {"ps": 1, "worker": 1, "evaluator": 1, "chief": -9}
    last = (store.latest() or 0) + 50
    found = ends({role: started(start, cluster, role, last) for role in ROLES})
    assert {role: end[0] for role, end in found.items()} == dict.fromkeys(ROLES, 0), told(found)
    check_trained(tmp_path / "model", last)
