"""Clusters that are not here: steps per second to 1,000 workers and 100 ps, and what keeps them from being more."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.mlp import WORKLOAD
from benchmarks.models import mlp
from benchmarks.plot import save
from benchmarks.scaling_costs import CostBench
from benchmarks.scaling_model import Bottleneck, Cluster, Costs, Prediction, predict
from benchmarks.settings import Settings
from ps_runtime.specs.layout import place
from ps_runtime.specs.variables import ModelSpec, VariableSpec

__all__ = ["CLUSTER", "Network", "draw_clusters", "points"]

logger = logging.getLogger(__name__)

CLUSTER = Cluster("tcp", cores=None, round_trip_secs=100e-6, network_bytes_per_sec=25e9 / 8)
"""Assumed: a host and a core for each role, 25 Gbit/s in each direction; CPU seconds as on loopback here."""

LARGE_PARAMETERS = 25_000_000
LARGE_COMPUTE_SECS = 0.25
LARGE_SHARD_BYTES = 16 << 20
NUM_PS = (1, 4, 16, 100)
NUM_WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1000)
TOLD = ((16, 1), (64, 4), (256, 16), (1000, 100))
"""Workers and ps of the points that are told."""
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


def draw_clusters(costs: Costs, settings: Settings) -> None:
    """Draw ``scaling_cluster.png``, write the numbers beside it, tell some of them.

    Parameters
    ----------
    costs : Costs
        Of the network 784-100-10.
    settings : Settings
    """
    networks = [Network("784-100-10, 0.3 MB", mlp.MODEL, costs)]
    networks += [] if settings.quick else [_large_network()]
    figure = Figure(figsize=(6.5 * len(networks), 5.2), layout="constrained")
    for axes, network in zip(figure.subplots(1, len(networks), squeeze=False)[0], networks, strict=True):
        _draw(axes, network)
    figure.suptitle(f"Predicted: tcp, a host and a core for each role, {_gigabits():.0f} Gbit/s")
    save(figure, settings.output / "scaling_cluster.png")
    found = list(points(networks))
    facts = {
        "cluster": asdict(CLUSTER),
        "costs": {network.name: asdict(network.costs) for network in networks},
        "points": found,
    }
    (settings.output / "scaling_cluster.json").write_text(json.dumps(facts, indent=2) + "\n")
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


def _large_network() -> Network:
    """Return a network of 100 MB whose gradient takes 0.25 s of a core, with costs of shards that no cache holds."""
    bench = CostBench(WORKLOAD, LARGE_SHARD_BYTES)
    try:
        bench.start()
        costs = replace(bench.costs(), compute_secs=LARGE_COMPUTE_SECS)
    finally:
        bench.close()
    model = ModelSpec((VariableSpec("w", (LARGE_PARAMETERS,), "float32", 0),), mlp.MODEL.optimizers)
    return Network(f"{model.nbytes // 10**6} MB, {LARGE_COMPUTE_SECS:g} s a gradient", model, costs)


def _draw(axes: Axes, network: Network) -> None:
    """Draw a line for each number of ps, coloured by what holds it back."""
    named = set()
    for num_ps in NUM_PS:
        found = [network.predict(n, num_ps) for n in NUM_WORKERS]
        rates = [prediction.steps_per_sec for prediction in found]
        axes.plot(NUM_WORKERS, rates, color="lightgrey", zorder=1)
        for n, prediction in zip(NUM_WORKERS, found, strict=True):
            what = prediction.bottleneck
            label = None if what in named else what.value
            named.add(what)
            axes.scatter([n], [prediction.steps_per_sec], s=16, color=COLOURS[what], label=label, zorder=2)
        axes.annotate(f"{num_ps} ps", (NUM_WORKERS[-1], rates[-1]), (4, 0), textcoords="offset points", va="center")
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="steps/s", title=network.name)
    axes.set_xlim(right=2.2 * NUM_WORKERS[-1])
    axes.grid(alpha=0.3)
    axes.legend(title="held back by", fontsize="small", loc="upper left")


def _gigabits() -> float:
    assert CLUSTER.network_bytes_per_sec is not None
    return 8e-9 * CLUSTER.network_bytes_per_sec
