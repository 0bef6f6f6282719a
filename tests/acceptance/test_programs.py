"""Migrated programs, each started in its own ways: they train equally well, end by themselves, and leave nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.records import EvaluationLog, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.model.evaluation import read_values
from tests.free_ports import free_address

pytestmark = pytest.mark.piece(number=2)


EXAMPLES = Path(__file__).parents[2] / "examples"
PSFLOW = str(Path(sys.executable).with_name("psflow"))
TIMEOUT_SECS = 240.0

Processes = dict[str, tuple[list[str], dict[str, str]]]
"""The arguments and settings of each process of a program, by its name."""


def by_flags(kinds: list[str], num_workers: int) -> Processes:
    """Each process is told its place by four flags; the first worker is the chief."""
    ps, *workers = (free_address() for _ in range(1 + num_workers))
    places = [("ps", 0), *(("worker", index) for index in range(num_workers)), *((kind, 0) for kind in kinds)]
    hosts = ["--ps_hosts", ps, "--worker_hosts", ",".join(workers)]
    return {f"{kind}-{index}": ([*hosts, "--job_name", kind, "--task_index", str(index)], {}) for kind, index in places}


def by_tf_config(kinds: list[str], num_workers: int) -> Processes:
    """Each process is told its place by TF_CONFIG; there is a chief beside the workers."""
    ps, chief, *workers = (free_address() for _ in range(1 + num_workers))
    cluster = {"ps": [ps], "chief": [chief], **({"worker": workers} if workers else {})}
    places = [(kind, index) for kind, addresses in cluster.items() for index in range(len(addresses))]
    return {
        f"{kind}-{index}": ([], {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})})
        for kind, index in [*places, *((kind, 0) for kind in kinds)]
    }


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., dict[str, str]]]:
    """Return what runs processes of a program, and returns what each has printed; all end by themselves with 0."""
    started: dict[str, subprocess.Popen[str]] = {}
    (tmp_path / "tmp").mkdir()
    (tmp_path / "work").mkdir()

    def run_all(program: list[str], processes: Processes, *arguments: str) -> dict[str, str]:
        for name, (flags, settings) in processes.items():
            started[name] = subprocess.Popen(
                [*program, *flags, *arguments],
                cwd=tmp_path / "work",
                env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), **settings},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        said = {name: process.communicate(timeout=TIMEOUT_SECS) for name, process in started.items()}
        codes = {name: process.returncode for name, process in started.items()}
        assert codes == dict.fromkeys(processes, 0), said
        for process in started.values():
            with pytest.raises(ProcessLookupError):
                os.killpg(process.pid, 0)
        assert list((tmp_path / "tmp").iterdir()) == []
        return {name: out for name, (out, _) in said.items()}

    yield run_all
    for process in started.values():
        if process.poll() is None:
            process.kill()
            process.communicate()


PYTHON = [sys.executable]
NETWORK = str(EXAMPLES / "migrated" / "sigmoid.py")
LINEAR = str(EXAMPLES / "migrated" / "linear.py")
COORDINATED = str(EXAMPLES / "migrated" / "coordinated.py")
LAUNCHER = str(EXAMPLES / "run_dist.py")
ONE_COMMAND: Processes = {"launcher": ([], {})}
PRINTED = re.compile(
    r"Step: (\d+),  Epoch: ( ?\d+),  Batch: ( ?\d+ of  ?\d+),  Cost: (\d+\.\d{4}),  AvgTime: \d+\.\d\dms$"
)
LATE = 0.05
"""How far gradients that are late on a busy machine leave a weight from where it belongs."""

of_the_digits = pytest.mark.skipif(
    Path("/usr/share/datasets/fashion-mnist").is_dir(),
    reason="the numbers are those of the digits, which the program reads where Fashion-MNIST is not installed",
)


def check_network(printed: str) -> tuple[int, float]:
    """Hold what one worker prints against what the program says it prints; return its first step, and the cost there.

    What it prints is one above the step.
    """
    *epochs, accuracy, total, cost = printed.splitlines()
    found = [PRINTED.fullmatch(line) for line in epochs]
    assert [int(match[2]) for match in found if match is not None] == list(range(1, 21)), printed
    steps = [int(match[1]) for match in found if match is not None]
    costs = [float(match[4]) for match in found if match is not None]
    assert steps == sorted(set(steps))
    assert costs[-1] < 0.3
    assert float(accuracy.removeprefix("Test-Accuracy: ")) >= 0.88
    assert total.startswith("Total Time: ")
    assert cost == f"Final Cost: {costs[-1]:.4f}"
    return steps[0], costs[0]


@of_the_digits
@pytest.mark.parametrize("consistency", [[], ["--sync"]], ids=["async", "sync"])
@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_the_network_trains_from_flags_in_a_loop_of_its_own_in_each_worker(
    num_workers: int, consistency: list[str], run: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    said = run([*PYTHON, NETWORK], by_flags([], num_workers), "--learning_rate", "0.5", *consistency)
    assert said.pop("ps-0") == ""
    assert min(map(check_network, said.values()))[1] > 0.3, "the first to be there learns from the start"
    finished = read_finished(str(tmp_path / "work" / "runs" / "mnist"))
    assert finished is not None
    assert finished.final_step == 280 * (1 if consistency else num_workers)


@of_the_digits
def test_the_network_trains_by_one_command(run: Callable[..., dict[str, str]]) -> None:
    options = ["--job-flags", "--no-evaluator", "--workers", "1", NETWORK, "--learning_rate", "0.5"]
    said = run([*PYTHON, LAUNCHER, *options], ONE_COMMAND)["launcher"].splitlines()
    for worker in ("worker-0: ", "worker-1: "):
        lines = [line.removeprefix(worker) for line in said if line.startswith((f"{worker}Step", f"{worker}Test"))]
        lines += [line.removeprefix(worker) for line in said if line.startswith((f"{worker}Total", f"{worker}Final"))]
        check_network("\n".join(lines))


@pytest.mark.ci
def test_a_worker_fn_of_the_coordinator_has_a_loop_of_its_own(run: Callable[..., dict[str, str]]) -> None:
    said = run([*PYTHON, COORDINATED], by_tf_config([], 3))
    assert said.pop("ps-0") == ""
    found = {name: text.rstrip().partition(", w = ") for name, text in said.items()}
    assert {name: who for name, (who, _, _) in found.items()} == {
        "chief-0": "chief 0 of 3",
        "worker-0": "worker 0 of 3",
        "worker-1": "worker 1 of 3",
    }
    assert [float(w) for _, _, w in found.values()] == pytest.approx([3.0] * 3, abs=LATE)


def test_a_worker_fn_of_the_coordinator_trains_by_one_command(run: Callable[..., dict[str, str]]) -> None:
    options = ["--no-evaluator", "--workers", "1", COORDINATED]
    said = run([*PYTHON, LAUNCHER, *options], ONE_COMMAND)["launcher"].splitlines()
    printed = sorted(line.partition(", w = ") for line in said if ", w = " in line)
    assert [who for who, _, _ in printed] == ["chief-0: chief 0 of 2", "worker-0: worker 0 of 2"]
    assert [float(w) for _, _, w in printed] == pytest.approx([3.0] * 2, abs=LATE)


LINEAR_WAYS = {
    "here": lambda: ([*PYTHON, LINEAR], {"all": ([], {})}),
    "flags": lambda: ([*PYTHON, LINEAR], by_flags(["evaluator"], 2)),
    "TF_CONFIG": lambda: ([*PYTHON, LINEAR], by_tf_config(["evaluator"], 2)),
    "psflow role, flags": lambda: (
        [PSFLOW, "role"],
        {name: ([*flags, LINEAR], settings) for name, (flags, settings) in by_flags(["evaluator"], 2).items()},
    ),
    "psflow role, TF_CONFIG": lambda: ([PSFLOW, "role", LINEAR], by_tf_config(["evaluator"], 1)),
    "run_dist, flags": lambda: ([*PYTHON, LAUNCHER, "--job-flags", LINEAR], ONE_COMMAND),
    "run_dist, TF_CONFIG": lambda: ([*PYTHON, LAUNCHER, "--workers", "1", LINEAR], ONE_COMMAND),
}


@pytest.mark.ci
@pytest.mark.parametrize("way", LINEAR_WAYS.values(), ids=LINEAR_WAYS)
def test_a_linear_regressor_finds_the_same_line_however_it_is_started(
    way: Callable[[], tuple[list[str], Processes]], run: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    run(*way())
    model_dir = str(tmp_path / "work" / "runs" / "linear")
    finished = read_finished(model_dir)
    assert finished is not None
    assert finished.final_step == 800
    assert EvaluationLog(model_dir).read()[-1].global_step == 800
    store = CheckpointStore(model_dir)
    values = read_values(CheckpointReader(store, store.latest() or 0)).variables
    names = ("feature1/weights", "feature2/weights", "bias_weights")
    found = [values[f"linear/linear_model/{name}"].item() for name in names]
    assert found == pytest.approx([2, -3, 0.5], abs=0.02)
