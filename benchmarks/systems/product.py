"""psflow as a system: `train_and_evaluate` on a LocalCluster, hooks, logging and checkpoints at their defaults."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.systems.base import System
from benchmarks.workloads import Workload
from psflow import (
    Estimator,
    EvalSpec,
    Event,
    FirstStep,
    Metrics,
    RunConfig,
    SessionRunHook,
    TrainSpec,
    train_and_evaluate,
)
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.errors import RoleFailedError, WaitTimeoutError

__all__ = ["ProductSystem"]

CLUSTER_TIMEOUT_SECS = 60.0
WORK_TIMEOUT_SECS = 120.0
END_TIMEOUT_SECS = 120.0
WARM_REPORTS = 3
CHIEF = "chief-0"
LOOK_SECS = 0.1


class StopFileHook(SessionRunHook):
    """Asks to stop once a file is there; looks ten times a second."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._looked_at = 0.0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Look for the file, now and then."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECS:
            self._looked_at = now
            if os.path.exists(self._path):
                run_context.coordinator.request_stop("the benchmark is over")


class ProductSystem(System):
    """A job on a cluster of its own, a process for each role.

    Parameters
    ----------
    workload : Workload
        What is trained: a model, its batches and their sizes.
    case : Case
        The way in which it trains.
    settings : mapping, optional
        Further settings of the RunConfig.
    """

    def __init__(self, workload: Workload, case: Case, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"psflow {case.key}")
        self.workload = workload
        self.case = case
        self._num_training = 0
        self._roles: dict[str, int] = {}
        self._settings = dict(settings or {})
        self._resources = ExitStack()
        self._error: BaseException | None = None
        self._reports: dict[str, dict[str, Any]] | None = None
        self._thread: threading.Thread | None = None

    @property
    def roles(self) -> Mapping[str, int]:
        """The process of each role."""
        return self._roles

    def start(self) -> None:
        """Start cluster and job, wait until every replica trains, hold it.

        Raises
        ------
        UsageError
            If psflow does not run such a case.
        """
        self.directory = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="psflow-bench-")))
        num_roles = self.case.num_ps + self.case.num_replicas + 1
        self._client = self._resources.enter_context(open_cluster(None, num_roles, CLUSTER_TIMEOUT_SECS))
        self._thread = threading.Thread(target=self._train, name="psflow-bench-job", daemon=True)
        self._thread.start()
        self.await_work(self._is_at_work, WORK_TIMEOUT_SECS)
        self._roles = self._find_roles()
        self.hold()

    def check(self) -> None:
        """Raise what the job failed with."""
        if self._error is not None:
            raise self._error
        if self._reports is not None:
            raise RoleFailedError(self.name, "training ended without a request")

    def close(self) -> None:
        """Let the job come to its end, and end the cluster.

        Raises
        ------
        RoleFailedError
            If a replica did not use the transport of the case.
        """
        self.let_go()
        try:
            if self._thread is not None:
                (self.directory / "stop").touch()
                self._thread.join(END_TIMEOUT_SECS)
                if self._thread.is_alive():
                    raise WaitTimeoutError(self.name, "end", END_TIMEOUT_SECS)
                self._thread = None
                self._check_transport()
        finally:
            self._resources.close()

    def _train(self) -> None:
        workload, case = self.workload, self.case
        config = RunConfig(
            tf_random_seed=1, save_summary_steps=workload.report_steps, **case.settings(), **self._settings
        )
        input_fn = partial(workload.module.input_fn, dict(workload.params))
        try:
            self._reports = train_and_evaluate(
                Estimator(workload.module.model_fn, str(self.directory / "model"), config, dict(workload.params)),
                TrainSpec(input_fn, hooks=[StopFileHook(str(self.directory / "stop"))]),
                EvalSpec(input_fn, steps=1),
                client=self._client,
                num_ps=case.num_ps,
                num_workers=case.num_replicas - 1,
                transport=case.transport,
                on_event=self._take,
            )
        except BaseException as error:
            self._error = error

    def _take(self, event: Event) -> None:
        if isinstance(event, FirstStep):
            self._num_training += 1
        elif isinstance(event, Metrics) and "clock" in event.values:
            self.progress.add(event.role, event.step, event.values["clock"])

    def _is_at_work(self) -> bool:
        return self._num_training >= self.case.num_replicas and self.progress.num_reports(CHIEF) >= WARM_REPORTS

    def _find_roles(self) -> dict[str, int]:
        """Ask the cluster where each role runs: the key of its task ends with its name."""
        pids = self._client.run(os.getpid)
        tasks = {str(key): address for address, keys in self._client.processing().items() for key in keys}
        return {"-".join(key.split("-")[3:5]): pids[address] for key, address in tasks.items()}

    def _check_transport(self) -> None:
        for role, report in (self._reports or {}).items():
            if role.startswith(("chief", "worker")) and report["transport"] != self.case.transport:
                raise RoleFailedError(role, f"it used {report['transport']}, the case is {self.case.key}")
