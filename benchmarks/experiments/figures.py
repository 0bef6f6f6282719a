"""Figures of the experiment on consistency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.experiments.curves import Curve
from benchmarks.experiments.tables import selected
from benchmarks.experiments.trials import EPOCHS, NUM_REPLICAS, PROBLEMS, Problem
from psflow.ps_runtime.specs.consistency import Sync

__all__ = ["write_figures"]

COLOURS = {"async": "tab:red", "bounded_staleness": "tab:orange", "sync": "tab:blue", "hogwild": "tab:green"}
REPLICA_COLOURS = {1: "tab:blue", 2: "tab:orange", 3: "tab:green"}
STYLE: Any = {"svg.hashsalt": "psflow", "svg.fonttype": "none", "font.size": 9, "path.simplify": True}
METADATA = {"Date": None, "Creator": None}
"""Left out, so that the same curves give the same file."""


def write_figures(curves: Sequence[Curve], directory: Path) -> list[Path]:
    """Write an SVG file for each problem that has curves; return their paths."""
    paths = []
    with mpl.rc_context(STYLE):
        for name in (*PROBLEMS, EPOCHS.name):
            if selected(curves, name):
                figure = _consistency_figure(PROBLEMS[name], curves) if name in PROBLEMS else _epochs_figure(curves)
                paths.append(directory / f"{name}.svg")
                figure.savefig(paths[-1], metadata=METADATA)
    return paths


def _consistency_figure(problem: Problem, curves: Sequence[Curve]) -> Figure:
    """Return the test loss against the gradients: a row for each rate, a column for each number of replicas."""
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots(2, len(NUM_REPLICAS), sharex=True, sharey="row")
    for row, rate in enumerate((problem.small_rate, problem.large_rate)):
        for column, num_replicas in enumerate(NUM_REPLICAS):
            panel = axes[row][column]
            panel.set_title(f"rate {rate:g}, {_workers(num_replicas)}", fontsize=9)
            for name, colour in COLOURS.items():
                facts = {"consistency": name, "learning_rate": rate, "num_replicas": num_replicas}
                _draw(panel, selected(curves, problem.name, **facts), colour, name)
            if row == 0 and num_replicas > 1:
                scaled = problem.scaled_rate(num_replicas)
                facts = {"consistency": Sync.name, "learning_rate": scaled, "num_replicas": num_replicas}
                _draw(panel, selected(curves, problem.name, **facts), COLOURS[Sync.name], "sync, rate x workers", "--")
            panel.set_yscale("log")
            panel.grid(alpha=0.3)
    for panel in axes[-1]:
        panel.set_xlabel("gradients")
    for panels in axes:
        panels[0].set_ylabel("test loss")
    axes[0][-1].legend(fontsize=7)
    return figure


def _draw(panel: Any, curves: Sequence[Curve], colour: str, label: str, line: str = "-") -> None:
    for number, curve in enumerate(curves):  # one for each seed
        panel.plot(curve.gradients, curve.losses, line, color=colour, label=None if number else label, linewidth=1)


def _epochs_figure(curves: Sequence[Curve]) -> Figure:
    """Return the accuracy against the epochs of each worker, and against the gradients of all."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    by_epochs, by_gradients = figure.subplots(1, 2, sharey=True)
    for num_replicas, colour in REPLICA_COLOURS.items():
        for curve in selected(curves, EPOCHS.name, num_replicas=num_replicas):
            accuracies = [None if error is None else 1 - error for error in curve.errors]
            epochs = [20 * gradients / curve.trial["num_gradients"] for gradients in curve.gradients]
            for panel, x in ((by_epochs, epochs), (by_gradients, curve.gradients)):
                panel.plot(x, accuracies, color=colour, label=_workers(num_replicas), linewidth=1)
    by_epochs.set(xlabel="epochs, if each worker reads all the data", ylabel="test accuracy")
    by_gradients.set(xlabel="gradients of all workers")
    for panel in (by_epochs, by_gradients):
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    return figure


def _workers(num_replicas: int) -> str:
    return f"{num_replicas} training worker{'s' if num_replicas > 1 else ''}"
