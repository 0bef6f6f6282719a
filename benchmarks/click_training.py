"""Train a configuration and report progress: ``python -m benchmarks.click_training CONF``.

Without workers the whole job runs in this process, else on a new cluster. Stdout has a line of JSON for each report:
 ``{"step": .., "time": ..}`` on the system's monotonic clock, and ``{"ended": time}``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from psflow import Event, Metrics, SessionRunHook, train_and_evaluate
from psflow.flows.parameters.configuration import read_settings
from psflow.flows.parameters.train import parse_parameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.cluster.connecting import open_cluster

__all__ = ["ClockHook", "main"]

REPORT_STEPS = 10
CLUSTER_TIMEOUT_SECS = 60.0


class ClockHook(SessionRunHook):
    """Reports when a step was done, on each multiple of `REPORT_STEPS`."""

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Begin to count."""
        self._told = session.global_step

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Tell, if it is time to."""
        session = run_context.session
        if session.global_step - self._told >= REPORT_STEPS:
            self._told = session.global_step
            session.report(self._told, {"clock": time.monotonic()})


def main(arguments: Sequence[str]) -> None:
    """Train to the end."""
    settings = read_settings(arguments)
    parameters = parse_parameters(settings.values, settings.origins)
    training = build_training(parameters)
    cluster = parameters.cluster
    with ExitStack() as stack:
        is_alone = (cluster.ps, cluster.workers) == (1, 0)
        num_roles = cluster.ps + cluster.workers + 2  # the chief and the evaluator
        train_and_evaluate(
            training.estimator,
            replace(training.train_spec, hooks=(ClockHook(),)),
            [replace(spec, exporters=()) for spec in training.eval_specs],
            client=None if is_alone else stack.enter_context(open_cluster(None, num_roles, CLUSTER_TIMEOUT_SECS)),
            num_ps=cluster.ps,
            num_workers=cluster.workers,
            on_event=_tell,
        )
        _say(ended=time.monotonic())


def _tell(event: Event) -> None:
    if isinstance(event, Metrics) and event.role == "chief-0" and "clock" in event.values:
        _say(step=event.step, time=event.values["clock"])


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
