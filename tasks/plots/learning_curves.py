"""Learning curves as an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psflow.tasks.plots.figures import new_figure, png

__all__ = ["learning_curves"]

Curve = Sequence[tuple[int, float]]
"""Points of global_step and value."""

MAX_METRICS = 6
"""Panels beside that of the loss."""
COLUMNS = 3


def learning_curves(training_loss: Curve, evaluations: Mapping[str, Mapping[str, Curve]], best: int | None) -> bytes:
    """Return a PNG with the loss of training and evaluation, and the other metrics of evaluations, by global_step."""
    panels: dict[str, dict[str, Curve]] = {"loss": {"train": training_loss} if training_loss else {}}
    for name, curves in evaluations.items():
        for metric, curve in curves.items():
            if metric in panels or len(panels) <= MAX_METRICS:
                panels.setdefault(metric, {})[name] = sorted(curve)
    rows = -(-len(panels) // COLUMNS)
    columns = min(COLUMNS, len(panels))
    figure = new_figure(5.0 * columns, 3.6 * rows)
    for axes, (metric, lines) in zip(figure.subplots(rows, columns, squeeze=False).flat, panels.items(), strict=False):
        for name, curve in lines.items():
            marker = "" if name == "train" else "."
            axes.plot([step for step, _ in curve], [value for _, value in curve], marker=marker, label=name)
        if best is not None:
            axes.axvline(best, color="grey", linestyle=":", linewidth=1, label=f"best, {best}")
        axes.set(title=metric, xlabel="global_step")
        if lines:
            axes.legend(fontsize="small")
    for axes in list(figure.axes)[len(panels) :]:
        axes.remove()
    return png(figure)
