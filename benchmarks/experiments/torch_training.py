"""Quality of torch modules on the ps, beside plain torch: ``python -m benchmarks.experiments.torch_training``.

Trains each problem from a configuration with one ps and two replicas, and with plain torch and
DistributedDataParallel, all for the same number of gradients, and puts a table into ``docs/experiments.md``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.clicks import TreeWatch
from benchmarks.markdown import markdown_table, with_tables
from benchmarks.peer import free_ports
from psflow.ps_runtime.cluster.fork_server import ENVIRONMENT
from psflow.ps_runtime.config.environment import child_environment
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.digits import Digits
from psflow.ps_runtime.data.idx_images import Idx

__all__ = ["main"]

ROOT = Path(__file__).parents[2]
CONF, EXAMPLES = ROOT / "conf", ROOT / "examples"
PAGE = ROOT / "docs" / "experiments.md"
SEEDS = (1, 2, 3)
NUM_REPLICAS = 2
TIMEOUT_SECS = 900.0
ALL_ROWS = 1_000_000
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Problem:
    """What is trained: a configuration, and the same for plain torch."""

    configuration: Callable[[Path], Path]
    """Returns the file, which may read the arrays in a folder."""
    module: str
    """A class, as the configuration names it, in the folder `code`."""
    code: Path
    optimizer: str
    learning_rate: float
    batch_size: int
    num_gradients: int
    metric: str
    arrays: Callable[[], tuple[Arrays, Arrays]]


@dataclass(frozen=True)
class Result:
    """One training: the metric on the test part; seconds and CPU seconds of the whole command; the rate of steps."""

    metric: float
    wall_secs: float
    cpu_secs: float
    examples_per_sec: float


def _digits() -> tuple[Arrays, Arrays]:
    return _columns(Digits(split="train").read()), _columns(Digits(split="test").read())


def _clothes() -> tuple[Arrays, Arrays]:
    return _images("train"), _images("t10k")


def _images(part: str) -> Arrays:
    start = f"/usr/share/datasets/fashion-mnist/{part}"
    images, labels = f"{start}-images-idx3-ubyte.gz", f"{start}-labels-idx1-ubyte.gz"
    return _columns(Idx(path=images, labels_path=labels, scale=(0, 1)).read())


def _columns(dataset: Dataset) -> Arrays:
    features, labels = dataset.read(0, 0, dataset.num_records)
    [pixels] = features.values() if isinstance(features, dict) else [features]
    return {"pixels": pixels, "labels": np.asarray(labels)}


def _ratings() -> tuple[Arrays, Arrays]:
    spec = importlib.util.spec_from_file_location("torch_recommender", EXAMPLES / "torch_recommender.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    parts = (example.ratings(seed, number) for seed, number in ((1, 200_000), (2, 20_000)))
    train, test = ({**ids, "labels": likes.astype(np.float32)} for ids, likes in parts)
    return train, test


def _recommender(folder: Path) -> Path:
    def read(part: str, **order: Any) -> dict[str, Any]:
        return {"format": "npz", "path": f"{folder}/{part}.npz", **order}

    optimizer = {"name": "Adagrad", "learning_rate": 0.1, "initial_accumulator_value": 0.0, "epsilon": 1e-10}
    head = {"name": "BinaryClassHead"}
    conf = {
        "experiment": "recommender",
        "code_dir": str(EXAMPLES),
        "model": {"name": "torch_recommender:Recommender", "head": head, "optimizer": optimizer},
        "input": {"train": read("train", batch_size=200, shuffle=True), "eval": read("test", batch_size=1000)},
    }
    path = folder / "recommender.yaml"
    path.write_text(json.dumps(conf))  # which is YAML, too
    return path


PROBLEMS = {
    "digits": Problem(
        lambda _: CONF / "torch_digits.yaml",
        *("torch_models:DigitsNet", CONF, "Adam", 0.003, 32, 1500, "accuracy"),
        _digits,
    ),
    "Fashion-MNIST": Problem(
        lambda _: CONF / "torch_fashion_mnist.yaml",
        *("torch_models:ClothesNet", CONF, "Adam", 0.001, 100, 3000, "accuracy"),
        _clothes,
    ),
    "recommender": Problem(
        _recommender, *("torch_recommender:Recommender", EXAMPLES, "Adagrad", 0.1, 200, 3000, "auc"), _ratings
    ),
}


def main() -> int:
    """Train each problem with each system and seed; write the table."""
    rows = []
    for name, problem in PROBLEMS.items():
        found: dict[str, list[Result]] = {}
        with tempfile.TemporaryDirectory(prefix="psflow-experiment-") as directory:
            folder = Path(directory)
            for part, arrays in zip(("train", "test"), problem.arrays(), strict=True):
                np.savez(folder / part, **dict(arrays))  # type: ignore[arg-type]
            for seed in SEEDS:
                for system, run in SYSTEMS.items():
                    found.setdefault(system, []).append(run(problem, folder, seed))
                    print(f"{name}, {system}, seed {seed}: {found[system][-1]}", flush=True)
        rows += [[name, system, *_figures(results)] for system, results in found.items()]
    head = ["problem", "system", "accuracy or AUC: each seed", "wall s", "examples/s", "CPU s"]
    PAGE.write_text(with_tables(PAGE.read_text(), {"torch": markdown_table(head, rows)}))
    return 0


def _figures(results: list[Result]) -> list[str]:
    return [
        ", ".join(f"{result.metric:.4f}" for result in results),
        f"{median(result.wall_secs for result in results):.1f}",
        f"{median(result.examples_per_sec for result in results):,.0f}",
        f"{median(result.cpu_secs for result in results):.1f}",
    ]


def _product(consistency: str) -> Callable[[Problem, Path, int], Result]:
    def run(problem: Problem, folder: Path, seed: int) -> Result:
        num_updates = problem.num_gradients // (NUM_REPLICAS if consistency == "sync" else 1)
        settings = {
            "seed": seed,
            "model_dir": folder / f"{consistency}-{seed}",
            "train.max_steps": num_updates,
            "train.save_checkpoints_steps": num_updates,
            "train.consistency": consistency,
            "cluster.ps": 1,
            "cluster.workers": NUM_REPLICAS - 1,
        }
        overrides = [f"{key}={value}" for key, value in settings.items()]
        command = ["-m", "psflow", "train", str(problem.configuration(folder)), *overrides, "--json"]
        tracking = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}"}
        [output], wall_secs, cpu_secs = _run([command], tracking)
        summary = json.loads(output.splitlines()[-1])
        [*_, last] = Path(summary["model_dir"], "evaluations.jsonl").read_text().splitlines()
        metric = json.loads(last)["metrics"][problem.metric]
        rate = problem.batch_size * problem.num_gradients / summary["train"]["secs"]
        return Result(metric, wall_secs, cpu_secs, rate)

    return run


def _plain(world_size: int) -> Callable[[Problem, Path, int], Result]:
    def run(problem: Problem, folder: Path, seed: int) -> Result:
        facts = {
            "folder": str(problem.code),
            "module": problem.module,
            "optimizer": problem.optimizer,
            "learning_rate": problem.learning_rate,
            "metric": problem.metric,
            "num_gradients": problem.num_gradients,
            "batch_size": problem.batch_size,
            "seed": seed,
            "world_size": world_size,
            "address": f"tcp://127.0.0.1:{free_ports(1)[0]}",
            "train": str(folder / "train.npz"),
            "test": str(folder / "test.npz"),
        }
        path = folder / "facts.json"
        path.write_text(json.dumps(facts))
        programs = [["-m", "benchmarks.peers.torch_training", str(path), str(rank)] for rank in range(world_size)]
        [output, *_], wall_secs, cpu_secs = _run(programs)
        found = json.loads(output)
        rate = problem.batch_size * problem.num_gradients / found["secs"]
        return Result(found[problem.metric], wall_secs, cpu_secs, rate)

    return run


def _run(programs: list[list[str]], settings: Mapping[str, str] = {}) -> tuple[list[str], float, float]:
    """Run programs at the same time; return their output, and seconds and CPU seconds of all together.

    Raises RuntimeError if one fails.
    """
    began = time.monotonic()
    environment = child_environment({**ENVIRONMENT, **settings})
    processes = [
        Popen([sys.executable, *program], stdout=PIPE, stderr=PIPE, text=True, cwd=ROOT, env=environment)
        for program in programs
    ]
    with TreeWatch([process.pid for process in processes]) as watch:
        outputs: list[tuple[str, str]] = [process.communicate(timeout=TIMEOUT_SECS) for process in processes]
    for program, process, (_, errors) in zip(programs, processes, outputs, strict=True):
        if process.returncode:
            raise RuntimeError(f"{' '.join(program)} failed: {errors}")
    return [output for output, _ in outputs], time.monotonic() - began, sum(watch.cpu_secs.values())


SYSTEMS: Mapping[str, Callable[[Problem, Path, int], Result]] = {
    "psflow async": _product("async"),
    "psflow sync": _product("sync"),
    "plain torch": _plain(1),
    "DDP": _plain(NUM_REPLICAS),
}


if __name__ == "__main__":
    sys.exit(main())
