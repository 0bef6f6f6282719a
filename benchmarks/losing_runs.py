"""Jobs of psflow that lose a role: the rate of the others, and the time until training continues."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client

from benchmarks.workloads import Workload
from psflow import (
    Dataset,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    ModeKeys,
    RunConfig,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    TrainSpec,
    get_variable,
)
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import RoleFailedError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import Checkpoint, Event, FirstStep, Metrics, Restored

__all__ = ["Rates", "Recovery", "rates_around", "run_with_lost_ps", "run_with_lost_worker"]

NUM_WORKERS = 2
LOST_WORKER = "worker-0"
STEP_SECS = 0.01
"""Minimum duration of a step, so that the number of cores has no influence."""
PACED_SAVE_STEPS = 50
REPORT_STEPS = 10
"""Steps of a replica between two of its reports."""
NUM_STEPS = "num_steps"
WARM_SECS = 3.0
TIMEOUT_SECS = 300.0
CHIEF = "chief-0"
ROLE_TASK = re.compile(r"psflow-[0-9a-f]+-\d+-(.+)-\d+")
"""The names of psflow's Dask tasks of roles."""

Report = tuple[float, int]
"""A Unix time, and the number of steps of a replica until then."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Steps per second of all replicas but one, before it was lost, and since."""

    before: float
    since: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from the death of a ps until the next step of the chief, and those of the restore of the checkpoint."""

    total: float
    restore: float


def steps_between(reports: list[Report], start: float, stop: float) -> float:
    """Return how many steps a replica made between two times; reports lie around both.

    Examples
    --------
    >>> steps_between([(0.0, 0), (1.0, 10), (2.0, 20)], 0.5, 1.5)
    10.0
    """
    times, counts = zip(*reports, strict=True)
    return float(np.interp(stop, times, counts) - np.interp(start, times, counts))


def rates_around(reports: dict[str, list[Report]], at: float, secs: float) -> Rates:
    """Return the rates of all replicas of `reports` together, in `secs` seconds before and after a time.

    Examples
    --------
    >>> rates_around({"chief-0": [(0.0, 0), (10.0, 100), (20.0, 150)]}, 10.0, 10.0)
    Rates(before=10.0, since=5.0)
    """
    return Rates(
        *(
            sum(steps_between(found, *span) for found in reports.values()) / secs
            for span in ((at - secs, at), (at, at + secs))
        )
    )


class StepReports(SessionRunHook):
    """Reports the number of steps of its replica, every `REPORT_STEPS` steps."""

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Report if it is time to."""
        session = run_context.session
        if session.num_steps % REPORT_STEPS == 0:
            session.report(session.global_step, {NUM_STEPS: session.num_steps})


def paced_model_fn(features: Any, labels: Any, mode: ModeKeys) -> EstimatorSpec:
    """Count the updates, and take `STEP_SECS` for each."""
    num_updates = get_variable("num_updates", initializer=0.0)
    time.sleep(STEP_SECS)
    train_op = GradientDescent(1.0).apply_gradients({"num_updates": np.float32(-1)})
    return EstimatorSpec(mode, loss=np.mean(labels**2) + 0 * num_updates, train_op=train_op)


def paced_input_fn() -> Dataset:
    """Return records without end."""
    return Dataset({"x": np.zeros(1000, np.float32)}, np.zeros(1000, np.float32)).batch(4).repeat()


class _EnoughError(Exception):
    """Ends the job after the measurement."""


def run_with_lost_worker(model_dir: Path, fault: signal.Signals, secs: float) -> Rates:
    """Train with the chief and two workers, do `fault` to one worker, and measure the others.

    Parameters
    ----------
    model_dir : Path
        Of the job; checkpoints are saved each 50 steps.
    fault : signal.Signals
        SIGKILL, or SIGSTOP: it does not go on while they are measured.
    secs : float
        Seconds that are measured before the fault, and again after it.
    """
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=PACED_SAVE_STEPS)
    estimator = Estimator(paced_model_fn, str(model_dir), config)
    train_spec = TrainSpec(paced_input_fn, max_steps=None, hooks=[StepReports()])
    events: list[Event] = []
    hit: list[tuple[float, int]] = []

    def look(pids: dict[str, int]) -> None:
        now = time.time()
        started = [event.time for event in events if isinstance(event, FirstStep)]
        if not hit and len(started) == NUM_WORKERS + 1 and now >= max(started) + WARM_SECS + secs:
            os.kill(pids[LOST_WORKER], fault)
            hit.append((now, pids[LOST_WORKER]))
        elif hit and now >= hit[0][0] + secs + 1.0:
            if fault is signal.SIGSTOP:
                os.kill(hit[0][1], signal.SIGCONT)  # so that it ends with the others
            raise _EnoughError

    _train(estimator, train_spec, NUM_WORKERS, events, look)
    others = [CHIEF, *(f"worker-{i}" for i in range(NUM_WORKERS) if f"worker-{i}" != LOST_WORKER)]
    reports = {role: _reports(events, role) for role in others}
    return rates_around(reports, hit[0][0], secs)


def run_with_lost_ps(workload: Workload, model_dir: Path, save_steps: int) -> Recovery:
    """Train with one ps and the chief, kill the ps once it has saved a checkpoint amid training, and wait for a step.

    Parameters
    ----------
    workload : Workload
        What is trained.
    model_dir : Path
        Of the job.
    save_steps : int
        Steps between two checkpoints; the ps dies half as many after the first.
    """
    params = dict(workload.params)
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=save_steps, save_summary_steps=max(1, save_steps // 4))
    estimator = Estimator(workload.module.model_fn, str(model_dir), config, params)
    train_spec = TrainSpec(partial(workload.module.input_fn, params), max_steps=None)
    events: list[Event] = []
    killed: list[float] = []

    def look(pids: dict[str, int]) -> None:
        is_saved = any(isinstance(event, Checkpoint) and event.step == save_steps for event in events)
        last_step = max((event.step for event in events if isinstance(event, Metrics)), default=0)
        if not killed and is_saved and last_step >= save_steps + save_steps // 2:
            killed.append(time.time())
            os.kill(pids["ps-0"], signal.SIGKILL)
        elif killed and _first_step_after(killed[0], events) is not None:
            raise _EnoughError

    _train(estimator, train_spec, 0, events, look)
    stepped = _first_step_after(killed[0], events)
    assert stepped is not None
    [restore_secs] = [event.secs for event in events if isinstance(event, Restored) and event.time > killed[0]]
    return Recovery(stepped - killed[0], restore_secs)


def _train(
    estimator: Estimator,
    train_spec: TrainSpec,
    num_workers: int,
    events: list[Event],
    look: Callable[[dict[str, int]], None],
) -> None:
    """Train on a cluster of its own until `look`, which is given the process of each role, says that it is enough."""
    deadline = time.monotonic() + TIMEOUT_SECS
    with (
        open_cluster(None, num_workers + 2, TIMEOUT_SECS) as client,
        Attempt(estimator, train_spec, None, num_ps=1, num_workers=num_workers) as attempt,
        ClusterJob(client, attempt.job(), events.append) as run,
    ):
        run.start(AdmissionPolicy(TIMEOUT_SECS))
        pids = _pids(client)

        def check() -> None:
            if time.monotonic() >= deadline:
                raise RoleFailedError("the job", f"the measured event did not happen within {TIMEOUT_SECS:g} s")
            look(pids)

        with contextlib.suppress(_EnoughError):
            run.join(check)


def _pids(client: Client) -> dict[str, int]:
    """Return the process of each running role."""
    by_worker = client.run(os.getpid)
    running = [
        (ROLE_TASK.fullmatch(str(key)), address) for address, keys in client.processing().items() for key in keys
    ]
    return {found[1]: by_worker[address] for found, address in running if found}


def _reports(events: list[Event], role: str) -> list[Report]:
    """Return once a role has reported its number of steps."""
    found = [event for event in events if isinstance(event, Metrics) and event.role == role]
    values = [(event.time, name.rpartition("/")[2], value) for event in found for name, value in event.values.items()]
    return [(at, int(value)) for at, name, value in values if name == NUM_STEPS]


def _first_step_after(at: float, events: list[Event]) -> float | None:
    """Return when the chief made the first step of an incarnation that started after `at`; None before."""
    steps = [event.time for event in events if isinstance(event, FirstStep) and event.role == CHIEF]
    return min((time for time in steps if time > at), default=None)
