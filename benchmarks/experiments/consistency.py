"""Error of each consistency after equal numbers of gradients: ``python -m benchmarks.experiments.consistency``.

Runs every trial through psflow itself on a local cluster, one after the other; writes ``consistency.json`` and figures,
and puts the tables into ``docs/experiments.md``. Under ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.experiments.curves import Curve, run_trial
from benchmarks.experiments.figures import write_figures
from benchmarks.experiments.tables import tables
from benchmarks.experiments.trials import EPOCHS, PROBLEMS, Trial, consistency_trials, epoch_trials
from benchmarks.markdown import with_tables
from psflow.ps_runtime.cluster.connecting import open_cluster

__all__ = ["main", "read_curves", "write_results"]

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = "consistency.json"
NUM_SLOTS = 5
"""One ps, up to three training workers, the evaluator."""
CLUSTER_TIMEOUT_SECS = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment; return 1 if a trial failed, else 0."""
    options = _options(arguments)
    curves: list[Curve] = []
    with open_cluster(None, NUM_SLOTS, CLUSTER_TIMEOUT_SECS) as client:
        for trial in _trials(options.only):
            with tempfile.TemporaryDirectory(prefix="psflow-experiment-") as directory:
                curves.append(run_trial(client, trial, directory))
            _tell(trial, curves[-1])
    write_results(curves, options.docs)
    return int(any(curve.fault for curve in curves))


def write_results(curves: Sequence[Curve], docs: Path) -> None:
    """Write curves, figures and tables; problems that were not tried keep what they had."""
    directory = docs / "experiments"
    directory.mkdir(parents=True, exist_ok=True)
    tried = {curve.trial["problem"] for curve in curves}
    kept = [curve for curve in read_curves(directory) if curve.trial["problem"] not in tried]
    everything = [*kept, *curves]
    lines = ",\n".join(f"    {json.dumps(curve.as_json())}" for curve in everything)
    (directory / RESULTS).write_text(f'{{\n  "cores": {os.cpu_count()},\n  "curves": [\n{lines}\n  ]\n}}\n')
    write_figures(everything, directory)
    page = docs / "experiments.md"
    if page.exists():
        page.write_text(with_tables(page.read_text(), tables(everything)))


def read_curves(directory: Path) -> list[Curve]:
    """Return the curves that are written in a directory; none if there is no such file."""
    path = directory / RESULTS
    return [Curve(**facts) for facts in json.loads(path.read_text())["curves"]] if path.exists() else []


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [*PROBLEMS, EPOCHS.name]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experiments.consistency")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="parts to run; default: all")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder for results; default: %(default)s")
    return parser.parse_args(arguments)


def _trials(names: Sequence[str]) -> list[Trial]:
    trials = [trial for name, problem in PROBLEMS.items() if name in names for trial in consistency_trials(problem)]
    return [*trials, *(epoch_trials() if EPOCHS.name in names else ())]


def _tell(trial: Trial, curve: Curve) -> None:
    result = f"failed: {curve.fault}" if curve.fault else f"test error {curve.errors[-1]}"
    stale = "" if curve.mean_staleness is None else f", staleness {curve.mean_staleness:.2f}"
    print(f"{trial.key}: {result}{stale}, {curve.secs:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
