"""Extrapolation to larger clusters: steps per second up to 1,000 workers and 100 ps, and their bottlenecks."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.mlp import WORKLOAD
from benchmarks.models import mlp
from benchmarks.plot import save
from benchmarks.scaling_costs import CostBench
from benchmarks.scaling_model import Bottleneck, Cluster, Costs, Prediction, predict
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

__all__ = ["CLUSTER", "Network", "draw_clusters", "networks", "points", "small_network"]

logger = logging.getLogger(__name__)

CLUSTER = Cluster("tcp", cores=None, round_trip_secs=100e-6, network_bytes_per_sec=25e9 / 8)
"""Assumed: a host and a core for each role, 25 Gbit/s in each direction; CPU seconds as on loopback here."""

LARGE_PARAMETERS = 25_000_000
LARGE_COMPUTE_SECS = 0.25
LARGE_SHARD_BYTES = 16 << 20
BUSY_REPLICAS = 4
MARKERS = {1: "o", 4: "s", 16: "^", 100: "D"}
"""By number of ps."""
NUM_WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1000)
TOLD = ((16, 1), (64, 4), (256, 16), (1000, 100))
"""Workers and ps of the reported points."""
COLOURS = {
    Bottleneck.WORKERS: "tab:green",
    Bottleneck.TICKETS: "tab:red",
    Bottleneck.MESSAGES: "tab:orange",
    Bottleneck.LOG: "tab:purple",
    Bottleneck.APPLY: "tab:blue",
    Bottleneck.NETWORK: "tab:brown",
}


@dataclass(frozen=True, slots=True)
class Network:
    """A neural network to train: its name, its variables, and what a step of it costs."""

    name: str
    model: ModelSpec
    costs: Costs

    def predict(self, num_replicas: int, num_ps: int) -> Prediction:
        """Predict it on `CLUSTER`."""
        return predict(self.costs, CLUSTER, [layout.nbytes for layout in place(self.model, num_ps)], num_replicas)


def networks() -> list[Network]:
    """Measure what a step of each network costs: of the MLP, and of one of 100 MB whose gradient takes 0.25 s.

    The ps are kept busy meanwhile, as in a cluster that they hold back.
    """
    model = ModelSpec((VariableSpec("w", (LARGE_PARAMETERS,), "float32", 0),), mlp.MODEL.optimizers)
    costs = replace(_costs(LARGE_SHARD_BYTES), compute_secs=LARGE_COMPUTE_SECS)
    return [
        small_network(_costs(mlp.MODEL.nbytes)),
        Network(f"{model.nbytes // 10**6} MB, {LARGE_COMPUTE_SECS:g} s a gradient", model, costs),
    ]


def small_network(costs: Costs) -> Network:
    """Return the MLP with these costs of a step."""
    return Network("784-100-10, 0.3 MB", mlp.MODEL, costs)


def draw_clusters(networks: Sequence[Network], directory: Path) -> None:
    """Draw ``scaling_cluster.png``, write the numbers beside it, report some of them."""
    figure = Figure(figsize=(2 + 5.5 * len(networks), 4.8), layout="constrained")
    panels = figure.subplots(1, len(networks), squeeze=False)[0]
    seen = {what for axes, network in zip(panels, networks, strict=True) for what in _draw(axes, network)}
    handles = [Line2D([], [], color="grey", marker=marker, label=f"{m} ps") for m, marker in MARKERS.items()]
    held_back = [what for what in COLOURS if what in seen]
    handles += [Line2D([], [], ls="", marker="o", color=COLOURS[what], label=what.value) for what in held_back]
    figure.legend(handles=handles, title="colour: held back by", loc="outside right upper")
    figure.suptitle(f"Predicted: tcp, a host and a core for each role, {_gigabits():.0f} Gbit/s")
    save(figure, directory / "scaling_cluster.png")
    found = list(points(networks))
    facts = {
        "cluster": asdict(CLUSTER),
        "costs": {network.name: asdict(network.costs) for network in networks},
        "points": found,
    }
    (directory / "scaling_cluster.json").write_text(json.dumps(facts, indent=2) + "\n")
    for line in lines(found):
        logger.info("%s", line)


def points(networks: Iterable[Network], pairs: Sequence[tuple[int, int]] = TOLD) -> Iterator[dict[str, Any]]:
    """Yield what is predicted for pairs of a number of workers and a number of ps, as plain data."""
    for network in networks:
        for num_replicas, num_ps in pairs:
            found = network.predict(num_replicas, num_ps)
            yield {
                "network": network.name,
                "workers": num_replicas,
                "ps": num_ps,
                "steps_per_sec": float(f"{found.steps_per_sec:.3g}"),
                "bottleneck": found.bottleneck,
            }


def lines(found: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for people for each point."""
    for point in found:
        yield (
            f"predicted for {point['network']}, {point['workers']} workers x {point['ps']} ps: "
            f"{point['steps_per_sec']:,.4g} steps/s, held back by: {point['bottleneck']}"
        )


def _costs(large_bytes: int) -> Costs:
    bench = CostBench(WORKLOAD, large_bytes, BUSY_REPLICAS)
    try:
        bench.start()
        return bench.costs()
    finally:
        bench.close()


def _draw(axes: Axes, network: Network) -> set[Bottleneck]:
    """Draw a line for each number of ps, coloured by what holds it back; return all that does."""
    seen = set()
    for num_ps, marker in MARKERS.items():
        found = [network.predict(n, num_ps) for n in NUM_WORKERS]
        axes.plot(NUM_WORKERS, [one.steps_per_sec for one in found], color="lightgrey", zorder=1)
        for n, one in zip(NUM_WORKERS, found, strict=True):
            axes.scatter([n], [one.steps_per_sec], s=18, marker=marker, color=COLOURS[one.bottleneck], zorder=2)
            seen.add(one.bottleneck)
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="steps/s", title=network.name)
    axes.grid(alpha=0.3)
    return seen


def _gigabits() -> float:
    assert CLUSTER.network_bytes_per_sec is not None
    return 8e-9 * CLUSTER.network_bytes_per_sec
