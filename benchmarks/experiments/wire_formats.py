"""Error and bytes of each wire format: ``python -m benchmarks.experiments.wire_formats``.

Trains both problems over TCP with one ps and two replicas, synchronously, for each format and three seeds, measures
the conversion of 4 MB, and puts the tables into ``docs/experiments.md``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np
from distributed import Client

from benchmarks.experiments.consistency import CLUSTER_TIMEOUT_SECS, DOCS
from benchmarks.experiments.networks import estimator_of
from benchmarks.experiments.trials import PROBLEMS, Problem, Trial
from benchmarks.markdown import markdown_table, with_tables
from psflow import EvalSpec, Event, TrainSpec, train_and_evaluate
from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.protocol.wire_codec import BLOCK_SIZE, narrow, widen
from psflow.ps_runtime.specs.consistency import Sync
from psflow.ps_runtime.specs.wire_format import EXACT, WireFormat

__all__ = ["main"]

WIRES: Mapping[str, WireFormat] = {
    "float32": EXACT,
    "bfloat16 gradients": WireFormat(gradients="bfloat16"),
    "bfloat16 gradients and parameters": WireFormat("bfloat16", "bfloat16"),
}
SEEDS = (1, 2, 3)
NUM_REPLICAS = 2
NUM_SLOTS = NUM_REPLICAS + 2
NUM_VALUES = 1 << 20
NUM_CALLS = 200


@dataclass(frozen=True)
class Result:
    """The last evaluation of a training, and what its ps received and sent for each gradient, in KB."""

    error: float
    loss: float
    received_kb: float
    sent_kb: float


def main() -> int:
    """Run the experiment; return 0."""
    rows = []
    with open_cluster(None, NUM_SLOTS, CLUSTER_TIMEOUT_SECS) as client:
        for problem in PROBLEMS.values():
            for name, wire in WIRES.items():
                results = [_train(client, problem, wire, seed) for seed in SEEDS]
                rows.append([problem.name, name, *_figures(results)])
                print(" | ".join(rows[-1]), flush=True)
    head = ["problem", "wire format", "test error, %", "test loss", "KB received", "KB sent"]
    tables = {"wire": markdown_table(head, rows), "conversion": _conversion()}
    page = DOCS / "experiments.md"
    page.write_text(with_tables(page.read_text(), tables))
    print(tables["conversion"])
    return 0


def _train(client: Client, problem: Problem, wire: WireFormat, seed: int) -> Result:
    rate = problem.scaled_rate(NUM_REPLICAS)
    trial = Trial(problem, Sync(), NUM_REPLICAS, rate, problem.num_gradients, seed)
    train_fn, test_fn = problem.input_fns(seed)
    with tempfile.TemporaryDirectory(prefix="psflow-experiment-") as model_dir:
        reports = train_and_evaluate(
            estimator_of(trial, model_dir, wire),
            TrainSpec(train_fn, max_steps=trial.num_gradients // trial.gradients_per_update),
            EvalSpec(test_fn, steps=None, start_delay_secs=0, throttle_secs=0),
            client=client,
            num_workers=NUM_REPLICAS - 1,
            transport="tcp",
            on_event=_ignore,
        )
        last = EvaluationLog(model_dir).read()[-1]
    moved = reports["ps-0"]["statistics"]
    received_kb, sent_kb = (moved[name] / problem.num_gradients / 1e3 for name in ("bytes_in", "bytes_out"))
    return Result(1 - last.metrics["accuracy"], last.metrics["loss"], received_kb, sent_kb)


def _figures(results: list[Result]) -> list[str]:
    return [
        ", ".join(f"{100 * result.error:.2f}" for result in results),
        ", ".join(f"{result.loss:.4f}" for result in results),
        f"{median(result.received_kb for result in results):.1f}",
        f"{median(result.sent_kb for result in results):.1f}",
    ]


def _conversion() -> str:
    """Return the CPU milliseconds of converting 4 MB of float32."""
    values = np.random.default_rng(1).normal(size=NUM_VALUES).astype(np.float32)
    bits, scratch = np.empty(NUM_VALUES, np.uint16), np.empty(BLOCK_SIZE, np.uint32)
    rows = []
    for name, call in (
        ("float32 to bfloat16", lambda: narrow(values, bits, scratch)),
        ("bfloat16 to float32", lambda: widen(bits, values)),
    ):
        millis = sorted(_cpu_ms(call) for _ in range(NUM_CALLS))
        rows.append([name, f"{millis[0]:.2f}", f"{median(millis):.2f}"])
    return markdown_table(["4 MB of float32, ms of CPU", "best", "median"], rows)


def _cpu_ms(call: Callable[[], None]) -> float:
    began = time.process_time()
    call()
    return 1e3 * (time.process_time() - began)


def _ignore(event: Event) -> None:
    """Ignore an event."""


if __name__ == "__main__":
    sys.exit(main())
