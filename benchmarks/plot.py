"""Plot of a result: bars for each case, psflow beside its limit and its peer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.rows import Row

__all__ = ["plot_rows", "save"]

SYSTEMS = {"psflow": "#1f77b4", "limit": "#b0b0b0", "peer": "#ff7f0e"}
BAR = 0.27
INCHES_A_CASE = 0.75


def plot_rows(title: str, rows: Sequence[Row], path: Path) -> None:
    """Draw a panel for each unit, and write a PNG; whiskers are quartiles."""
    units = list(dict.fromkeys(row.unit for row in rows))
    heights = [sum(row.unit == unit for row in rows) + 0.8 for unit in units]
    figure = Figure(figsize=(9, 0.8 + INCHES_A_CASE * sum(heights)), layout="constrained")
    panels = figure.subplots(len(units), 1, squeeze=False, height_ratios=heights)[:, 0]
    figure.suptitle(title)
    for axes, unit in zip(panels, units, strict=True):
        shown = [row for row in rows if row.unit == unit]
        for offset, (name, colour) in enumerate(SYSTEMS.items()):
            bars = [(i, spread) for i, row in enumerate(shown) if (spread := getattr(row, name)) is not None]
            if not bars:
                continue
            medians = [spread.median for _, spread in bars]
            whiskers = [[s.median - s.q1 for _, s in bars], [s.q3 - s.median for _, s in bars]]
            places = [i + (offset - 1) * BAR for i, _ in bars]
            axes.barh(places, medians, BAR, xerr=whiskers, color=colour, label=name, capsize=2)
        axes.set_yticks(range(len(shown)), [row.case for row in shown])
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.legend(loc="best", fontsize="small")
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    FigureCanvasAgg(figure).print_figure(path, format="png", dpi=110)
