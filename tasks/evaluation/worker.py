"""Evaluates one checkpoint in a Dask worker, without Prefect and the flow."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import get_worker

from psflow.ps_runtime.checkpoint.file_store import SHARED
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.records import EvaluationRecord
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.cluster.fast_exit import leave_quickly
from psflow.ps_runtime.cluster.role_task import Liveness
from psflow.ps_runtime.config.environment import prepare_environment
from psflow.ps_runtime.data.kept_scan import FlowScan
from psflow.ps_runtime.errors import InputError, NoCheckpointError, PsflowError, StoppedError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.evaluation import OpenedEvaluation, read_values
from psflow.ps_runtime.model.training import EvalSpec
from psflow.ps_runtime.one_thread import one_thread
from psflow.ps_runtime.shipping.pickles import unpickled
from psflow.ps_runtime.specs.schema import InputSchema


@dataclass(frozen=True)
class EvaluationJob:
    """Inputs and settings of the evaluations."""

    model_dir: str
    model_fn: Callable[..., Any]
    params: Mapping[str, Any]
    config: Any
    eval_specs: tuple[EvalSpec, ...]
    digests: tuple[str, ...]
    scans: tuple[bytes | None, ...]
    schema: InputSchema | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed evaluation of one checkpoint against the EvalSpec `name`."""

    name: str
    global_step: int
    reason: str


Outcome = EvaluationRecord | Failure


class _Opened:
    """A job in this process: model_fn and inputs are opened once for all checkpoints."""

    def __init__(self, pickled: bytes) -> None:
        job: EvaluationJob = unpickled(pickled)
        self._caller = ModelCaller(job.model_fn, job.params, job.config, job.schema)
        self._digests = job.digests
        self._check = threading.local()
        self._evaluations = [
            OpenedEvaluation(self._caller, spec, job.schema, self._look_up, _kept(scan))
            for spec, scan in zip(job.eval_specs, job.scans, strict=True)
        ]
        self._store = CheckpointStore(job.model_dir)

    def evaluate(self, step: int, indexes: Sequence[int], check: Callable[[], None]) -> list[Outcome]:
        self._check.call = check
        names = [self._evaluations[index].name for index in indexes]
        try:
            with CheckpointReader.pinned(self._store, step, "evaluate") as reader:
                values, saved_at = read_values(reader), reader.manifest.saved_at
        except NoCheckpointError:  # the flow found it
            place, host = self._store.path(step), socket.gethostname()
            reason = f"a Dask worker on {host} cannot see {place}: it was removed, or is not shared; {SHARED}"
            return [Failure(name, step, reason) for name in names]
        except Exception as error:  # the other checkpoints must go on
            return [Failure(name, step, _reason(error)) for name in names]
        return [self._measure(index, step, saved_at, values) for index in indexes]

    def _measure(self, index: int, step: int, saved_at: float, values: ModelValues) -> Outcome:
        opened = self._evaluations[index]
        try:
            metrics = opened.measure(values, step)
            if opened.digest != self._digests[index]:
                what = f"the input of evaluation {opened.name or 'eval'!r}"
                raise InputError((f"{what} has changed, or differs on this Dask worker; run the command again",))
        except StoppedError:
            raise
        except Exception as error:  # possibly of the user's code
            return Failure(opened.name, step, _reason(error))
        return EvaluationRecord(opened.name, step, saved_at, metrics, time.time(), opened.digest)

    def _look_up(self) -> None:
        self._check.call()


_opened: dict[str, _Opened] = {}
_lock = threading.Lock()


def evaluate_checkpoint(pickled: bytes, replay: str, step: int, indexes: Sequence[int]) -> list[Outcome]:
    """Evaluate the checkpoint of `step` against some EvalSpecs of a job. Body of a Dask task.

    Returns one result for each of `indexes`. Writes nothing but a pin.

    Notes
    -----
    Repeatable. BLAS uses one thread, as in every role, so that metrics are bitwise equal everywhere.
    """
    prepare_environment()
    leave_quickly()
    worker = get_worker()
    worker.log_event(replay, {"begun": step})
    liveness = Liveness(worker, worker.get_current_task(), f"evaluation of step {step}")
    with one_thread():
        return _job(pickled, replay).evaluate(step, indexes, liveness.check)


async def forget(replay: str) -> None:
    """Release the resources of a job in this process. Idempotent."""
    _opened.pop(replay, None)


def _job(pickled: bytes, replay: str) -> _Opened:
    with _lock:
        if replay not in _opened:
            _opened[replay] = _Opened(pickled)
        return _opened[replay]


def _kept(scan: bytes | None) -> FlowScan:
    return FlowScan(lambda: scan, "the scan of the input")


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, PsflowError) else f"{type(error).__name__}: {error}"
