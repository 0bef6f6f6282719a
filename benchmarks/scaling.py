"""A cost model of a step: checked against real runs, then extrapolated to larger clusters."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from benchmarks.cases import Case
from benchmarks.mlp import WORKLOAD
from benchmarks.models import mlp
from benchmarks.rounds import Slice, alternate, step_rate
from benchmarks.rows import Row, Samples
from benchmarks.scaling_cluster import draw_clusters, networks, small_network
from benchmarks.scaling_costs import CostBench
from benchmarks.scaling_model import Cluster, Costs, Prediction, predict
from benchmarks.settings import Settings
from benchmarks.systems.base import System
from benchmarks.systems.product import ProductSystem
from psflow.ps_runtime.specs.layout import place

__all__ = ["CLAIM", "measure"]

CLAIM = """\
Steps per second of n replicas and m ps follow from the costs of the parts of a step: computing, a pull, a push and an
update by their bytes, the transfer of decisions, and the cores of this machine. "limit" is the prediction of the model
from parts that were measured separately in the same round, "to limit" the share of it that psflow reaches. The same
model, extrapolated to 1,000 workers and 100 ps, names the bottleneck of a cluster."""

logger = logging.getLogger(__name__)

GROUPS = (
    tuple(Case("async", "shm", num_ps=1, num_replicas=n) for n in (1, 2, 3)),
    tuple(Case("async", "shm", num_ps=2, num_replicas=n) for n in (1, 2, 3)),
    tuple(Case("async", "tcp", num_ps=m, num_replicas=2) for m in (1, 2)),
)
"""Cases whose jobs are there at the same time."""


def measure(settings: Settings) -> list[Row]:
    """Measure costs and jobs in turn, compare, and draw."""
    groups = [[case for case in group if settings.wants(case.key)] for group in GROUPS]
    groups = [group for group in groups if group]
    if settings.quick:
        groups = [group[:1] for group in groups[:1]]
    rows: list[Row] = []
    for group in groups:
        slices, costs = _run(group, settings)
        rows += [_row(case, slices[case], costs) for case in group]
    if rows:
        draw_clusters([small_network(costs[0])] if settings.quick else networks(), settings.output)
    return rows


def _run(cases: Sequence[Case], settings: Settings) -> tuple[dict[Case, list[Slice]], list[Costs]]:
    """Return what the jobs did and what the parts cost, once a round."""
    slices: dict[Case, list[Slice]] = defaultdict(list)
    costs: list[Costs] = []
    secs = settings.slice_secs(WORKLOAD.slice_secs)
    for num_rounds in settings.rounds:
        bench = CostBench(WORKLOAD, mlp.MODEL.nbytes)
        products = {case: ProductSystem(WORKLOAD, case) for case in cases}
        logger.info("%d rounds: %s", num_rounds, ", ".join(case.key for case in cases))
        measured = alternate([bench, *products.values()], num_rounds, partial(_measure, secs=secs))
        costs += [found for found in measured[bench.name] if isinstance(found, Costs)]
        for case, product in products.items():
            slices[case] += [found for found in measured[product.name] if isinstance(found, Slice)]
    return slices, costs


def _measure(system: System, secs: float) -> Costs | Slice:
    return system.costs() if isinstance(system, CostBench) else step_rate(system, secs)


def _row(case: Case, slices: Sequence[Slice], costs: Sequence[Costs]) -> Row:
    predictions = [_predict(case, found) for found in costs]
    logger.info("%s: held back by %s", case.key, predictions[0].bottleneck)
    return Row.of(
        case.key,
        case.unit,
        Samples([s.steps_per_sec for s in slices], [s.cpu_secs_per_step for s in slices]),
        Samples([p.steps_per_sec for p in predictions], [p.cpu_secs_per_step for p in predictions]),
    )


def _predict(case: Case, costs: Costs) -> Prediction:
    here = Cluster(case.transport, len(os.sched_getaffinity(0)), costs.wake_secs)
    return predict(costs, here, [layout.nbytes for layout in place(mlp.MODEL, case.num_ps)], case.num_replicas)
