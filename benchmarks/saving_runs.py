"""Short jobs of psflow and of the peer that restore a checkpoint, train briefly and save."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

from distributed import Client

from benchmarks.peer import Peer, environments_of, peer_arguments
from benchmarks.systems.program import Command, ProgramSystem
from benchmarks.workloads import Workload
from psflow import Estimator, RunConfig, TrainSpec
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import Checkpoint, Event, Metrics, Restored

__all__ = ["PeerRuns", "ProductRuns", "Saved", "pause_after"]

SAVE_STEPS = 6
"""Steps between two checkpoints; a run makes twice as many, so that one of its checkpoints lies amid training."""
TIMEOUT_SECS = 300.0
CHIEF = "chief-0"

Report = tuple[int, float]
"""A step, and when it was done."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What one run took, in seconds.

    Parameters
    ----------
    stall : float
        Training waits so long for a checkpoint, as the system itself says.
    pause : float
        Time between the steps before and after the cut, less the usual one: what an observer sees of it.
    save : float
        Until the checkpoint is there.
    restore : float
        Until all values of a checkpoint are back; NaN where there was none yet.
    """

    stall: float
    pause: float
    save: float
    restore: float


def pause_after(step: int, reports: Sequence[Report]) -> float:
    """Return the time between `step` and the next one, less the median of the times between two steps.

    Examples
    --------
    >>> pause_after(3, [(1, 0.0), (2, 1.0), (3, 2.0), (4, 5.5), (5, 6.5)])
    2.5
    """
    gaps = {earlier[0]: later[1] - earlier[1] for earlier, later in pairwise(reports)}
    return gaps[step] - median(gaps.values())


class ProductRuns:
    """Runs of one job of psflow, 1 ps and the chief, on a cluster that is there; each resumes the one before.

    Parameters
    ----------
    client : Client
        Of the cluster that trains.
    workload : Workload
        What is trained: a model, its batches and their sizes.
    transport : str
        ``shm``, ``unix`` or ``tcp``.
    model_dir : Path
        Every run resumes from the last checkpoint there.
    """

    def __init__(self, client: Client, workload: Workload, transport: str, model_dir: Path) -> None:
        self._client = client
        self._workload = workload
        self._transport = transport
        self._model_dir = str(model_dir)

    def run(self) -> Saved:
        """Restore, train, save."""
        start = CheckpointStore(self._model_dir).latest() or 0
        events: list[Event] = []
        params = dict(self._workload.params)
        config = RunConfig(
            tf_random_seed=1, save_checkpoints_steps=SAVE_STEPS, save_summary_steps=1, keep_checkpoint_max=2
        )
        estimator = Estimator(self._workload.module.model_fn, self._model_dir, config, params)
        train_spec = TrainSpec(partial(self._workload.module.input_fn, params), max_steps=start + 2 * SAVE_STEPS)
        with (
            Attempt(estimator, train_spec, None, num_ps=1, transport=self._transport) as attempt,
            ClusterJob(self._client, attempt.job(), events.append) as job,
        ):
            job.start(AdmissionPolicy(TIMEOUT_SECS))
            job.join(attempt.check)
        cut = start + SAVE_STEPS
        [saved] = [e for e in events if isinstance(e, Checkpoint) and e.step == cut]
        assert saved.stall_secs is not None
        assert saved.secs is not None
        restored = [e.secs for e in events if isinstance(e, Restored)]
        steps = [(e.step, e.values["clock"]) for e in events if isinstance(e, Metrics) and "clock" in e.values]
        return Saved(saved.stall_secs, pause_after(cut, steps), saved.secs, *(restored or [math.nan]))


class PeerRuns:
    """The same of the peer, whose processes restart for each run.

    Parameters
    ----------
    peer : Peer
        The installation of TensorFlow.
    workload : Workload
        What is trained: a model, its batches and their sizes.
    directory : Path
        For records and model_dir.
    """

    def __init__(self, peer: Peer, workload: Workload, directory: Path) -> None:
        self._peer = peer
        self._workload = workload
        self._directory = directory
        self._num_steps = 0
        workload.save_arrays(str(directory / "records.npz"))

    def run(self) -> Saved:
        """Restore, train, save."""
        self._num_steps += 2 * SAVE_STEPS
        system = ProgramSystem("TensorFlow checkpoint", self._commands, counting=[CHIEF])
        try:
            system.launch()
            system.await_event(CHIEF, "ended", TIMEOUT_SECS)
            events = system.events[CHIEF]
            reports = system.progress.reports(CHIEF)
        finally:
            system.close()
        saved = [event["saved_secs"] for event in events if "saved_secs" in event]
        restored = [event["restored_secs"] for event in events if "restored_secs" in event]
        amid = saved[1]  # the first one is that of the start
        pause = pause_after(self._num_steps - SAVE_STEPS, reports)
        return Saved(amid, pause, amid, *(restored or [math.nan]))

    def _commands(self, _: Path) -> dict[str, Command]:
        arguments = peer_arguments(
            self._peer, self._workload, self._directory / "records.npz", self._directory / "model"
        )
        arguments += ["--save-steps", str(SAVE_STEPS), "--max-steps", str(self._num_steps)]
        return {role: Command(arguments, environment) for role, environment in environments_of(1, 1).items()}
