"""Tables of the experiment on consistency for its page of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from benchmarks.experiments.curves import Curve
from benchmarks.experiments.trials import EPOCHS, NUM_REPLICAS, PROBLEMS, Problem
from benchmarks.markdown import markdown_table
from psflow.ps_runtime.specs.consistency import CONSISTENCIES, Sync

__all__ = ["selected", "tables"]

NOTHING = "-"


def tables(curves: Sequence[Curve]) -> dict[str, str]:
    """Return the Markdown tables by name; those of problems without a curve are left out."""
    found = {}
    for name, problem in PROBLEMS.items():
        if selected(curves, name):
            found[name] = _problem_table(problem, curves)
            found[f"{name}-staleness"] = _staleness_table(problem, curves)
    if selected(curves, EPOCHS.name):
        found[EPOCHS.name] = _epochs_table(curves)
    return found


def selected(curves: Iterable[Curve], problem: str, **facts: Any) -> list[Curve]:
    """Return the curves of a problem whose trials have these facts."""
    wanted = {"problem": problem, **facts}
    return [curve for curve in curves if all(curve.trial[key] == value for key, value in wanted.items())]


def _problem_table(problem: Problem, curves: Sequence[Curve]) -> str:
    """Return the test error at the end: a row for each consistency, a column for each rate and number of replicas."""
    rates = (problem.small_rate, problem.large_rate)
    columns = [(rate, n) for rate in rates for n in NUM_REPLICAS]
    rows = []
    for name in CONSISTENCIES:
        of_name = selected(curves, problem.name, consistency=name)
        found = [selected(of_name, problem.name, learning_rate=rate, num_replicas=n) for rate, n in columns]
        rows.append([name, *(_each_error(some) for some in found)])
    of_sync = selected(curves, problem.name, consistency=Sync.name)
    scaled = [
        selected(of_sync, problem.name, learning_rate=problem.scaled_rate(n), num_replicas=n) for n in NUM_REPLICAS
    ]
    rows.append(["sync, rate x workers", *(_each_error(some) for some in scaled), *[NOTHING] * len(scaled)])
    return markdown_table(["test error, %", *(f"rate {rate:g}, {n}w" for rate, n in columns)], rows)


def _staleness_table(problem: Problem, curves: Sequence[Curve]) -> str:
    """Return mean and maximum of the staleness at the small rate: it does not depend on the rate."""
    rows = []
    for name in CONSISTENCIES:
        of_name = selected(curves, problem.name, consistency=name, learning_rate=problem.small_rate)
        rows.append([name, *(_staleness(selected(of_name, problem.name, num_replicas=n)) for n in NUM_REPLICAS)])
    return markdown_table(["staleness: mean, largest", *(f"{n}w" for n in NUM_REPLICAS)], rows)


def _epochs_table(curves: Sequence[Curve]) -> str:
    """Return the accuracy after equal numbers of gradients, and after the same number by each replica."""
    equal = EPOCHS.num_gradients
    rows = []
    for n in NUM_REPLICAS:
        found = selected(curves, EPOCHS.name, num_replicas=n)
        rows.append([str(n), *(_each_accuracy(found, num_gradients) for num_gradients in (equal, n * equal))])
    return markdown_table(["training workers", f"after {equal:,} gradients", f"after {equal:,} by each worker"], rows)


def _each_accuracy(curves: Sequence[Curve], num_gradients: int) -> str:
    errors = [curve.error_after(num_gradients) for curve in curves]
    return ", ".join("failed" if error is None else f"{1 - error:.3f}" for error in errors) or NOTHING


def _each_error(curves: Sequence[Curve]) -> str:
    """Return the test error at the end of each curve, one for each seed: their mean would hide who has diverged."""
    errors = [curve.error_after(curve.trial["num_gradients"]) for curve in curves]
    shown = ["failed" if error is None else f"{100 * error:.1f}" for error in errors]
    return ", ".join(shown) or NOTHING


def _staleness(curves: Sequence[Curve]) -> str:
    means = [curve.mean_staleness for curve in curves if curve.mean_staleness is not None]
    largest = [curve.max_staleness for curve in curves if curve.max_staleness is not None]
    return f"{fmean(means):.2f}, {max(largest)}" if means and largest else NOTHING
