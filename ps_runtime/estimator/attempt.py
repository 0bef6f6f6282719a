"""One attempt at the job of a model_dir: claims, plans, holds and releases it."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self

from psflow.ps_runtime.checkpoint.job_file import JobFile, JobRecord
from psflow.ps_runtime.checkpoint.records import FinishedMarker, clear_finished, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import LostDirectoryError, ModelDirError, PsflowError, UsageError
from psflow.ps_runtime.estimator.eval_metrics import (
    apply_saver_hook,
    check_early_stopping,
    check_evaluated_schedules,
    check_waiters,
    stopped_exactly,
)
from psflow.ps_runtime.estimator.event_log import log_event, print_unless_configured
from psflow.ps_runtime.estimator.local import run_local
from psflow.ps_runtime.estimator.model_dir import FORKED_FROM, Fork, check_location, check_model_dir, lost_job
from psflow.ps_runtime.estimator.planning import JobPlan, plan_job
from psflow.ps_runtime.estimator.prediction.predictions import schema_to_predict
from psflow.ps_runtime.estimator.warm_start import plan_warm_start
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.export.bundle import ModelWriter
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.model.training import EvalSpecs, TrainSpec, all_eval_specs, best_steps
from psflow.ps_runtime.model.warm_start import WarmStart
from psflow.ps_runtime.roles.events import Event
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.shipping.parts import code_digest
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.worker_context import check_task
from psflow.ps_runtime.transport.connecting import transport_named

ENDED_STEP = "ended_step"
"""Key in job.json of the step at which all roles of the last attempt ended."""
COMPLETED_STEP = "completed_step"
"""Key of that step once MLflow has all of its results."""
CODE_DIGEST = "code_digest"
"""Key of the digest of the user's code in the last attempt."""
FLOW_RUNS = "flow_runs"
"""Key of the Prefect flow runs of the attempts, oldest first: the page of each by its id."""

logger = logging.getLogger(__name__)

RENEW_SECS = 5.0
JOIN_SECS = 5.0
"""For a renewal of the lease that is under way as the block ends; a hanging store may take minutes to answer."""


class Trainable(Protocol):
    """The interface of an Estimator that an attempt uses."""

    model_dir: str
    config: RunConfig
    caller: ModelCaller
    warm_start_from: WarmStartSettings | None

    def check_labels(self, labels: Any, where: str, input_schema: InputSchema) -> None:
        """Raise InputError if the labels of a whole data set do not fit the model."""

    def read_schema(self, schema: InputSchema, where: str) -> InputSchema:
        """Return the schema of a training input as the model reads it."""

    def doubts(self, features: Any, schema: InputSchema, where: str) -> tuple[str, ...]:
        """Return warnings about the first batch of a training input."""


class Attempt:
    """Owns the job of an estimator's model_dir for the duration of a ``with`` block.

    Raises UsageError if model_fn, the input or the model_dir is wrong; nothing has been started or written then.
    """

    def __init__(
        self,
        estimator: Trainable,
        train_spec: TrainSpec,
        eval_specs: EvalSpecs,
        *,
        num_ps: int = 1,
        num_workers: int = 0,
        transport: str = "auto",
        reads_again: bool = False,
        fork: Fork | None = None,
        is_manual: bool = False,
    ) -> None:
        print_unless_configured()
        if not is_manual:
            _check_no_cluster(estimator.config)
        self._eval_specs = all_eval_specs(eval_specs)
        check_location(estimator.model_dir)
        self.model_dir = estimator.model_dir
        self._estimator = estimator
        self._config, train_spec = apply_saver_hook(estimator.config, train_spec, estimator.model_dir)
        start = CheckpointStore(estimator.model_dir).latest() or 0
        self._train_spec, self._end_reason = stopped_exactly(train_spec, start)
        self._num_ps = num_ps
        self.num_workers = num_workers
        """Number of workers beside the chief."""
        if num_workers:
            check_waiters(self._config, self._train_spec)
        transport_named(transport)  # refuses an unknown one before anything starts
        self._transport = transport
        self._reads_again = reads_again
        self._fork = fork
        self._file = JobFile(estimator.model_dir)
        self._file.check_place()
        self.seed = job_seed(estimator.model_dir, estimator.config.tf_random_seed)
        self._kept = KeptInputs(estimator.model_dir)
        self.plan: JobPlan = plan_job(
            estimator.caller,
            train_spec,
            self._eval_specs,
            self.seed,
            num_workers + 1,
            estimator.check_labels,
            self._kept,
            estimator.read_schema,
            estimator.doubts,
        )
        check_early_stopping(train_spec, self.plan.eval_metrics, estimator.model_dir)
        check_evaluated_schedules(self.plan.built.spec.train_ops, self.plan.eval_metrics)
        scaffold = self.plan.built.spec.scaffold
        if scaffold is not None and scaffold.saver is not None:
            self._config = scaffold.saver.applied_to(self._config)
        check_model_dir(estimator.model_dir, self.plan.model)
        self._lost_job = lost_job(estimator.model_dir)
        if fork is not None:
            fork.check(self.plan.model)
        self.warm_start = self._plan_warm_start(estimator.warm_start_from)
        self._released = threading.Event()
        self._loss: ModelDirError | LostDirectoryError | None = None
        self._wanted_workers: int | None = None

    def _plan_warm_start(self, settings: WarmStartSettings | None) -> WarmStart | None:
        """Return the sources of initial values; None if model_dir has values already, or no warm start is requested."""
        if settings is None:
            return None
        latest = CheckpointStore(self.model_dir).latest()
        if latest is None and self._fork is None:
            return plan_warm_start(settings, self.plan.model, self.plan.trainable)
        begins = f"has a checkpoint of step {latest}" if self._fork is None else "is a fork, which has a checkpoint"
        unused = settings.ckpt_to_initialize_from
        logger.info("%s %s: training continues there, and does not warm-start from %s", self.model_dir, begins, unused)
        return None

    def __enter__(self) -> Self:
        record = self._file.claim()
        try:
            self._take_over(record)
        except BaseException:
            self._release()
            raise
        self._loss = self._wanted_workers = None  # entered again when a failed flow is retried
        self._released = threading.Event()
        self._renewer = threading.Thread(target=self._renew, args=(self._released,), name="psflow-lease", daemon=True)
        self._renewer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        try:
            self._renewer.join(JOIN_SECS)
            if kind is None:
                self._collect_garbage()
            elif self._loss is None:
                with contextlib.suppress(PsflowError, OSError):  # the next attempt does it again
                    CheckpointStore(self.model_dir).discard_uncommitted()
        finally:
            self._release()

    def check(self) -> None:
        """Raise if the job no longer belongs to this owner; StoppedError if the task of this thread should end.

        Another owner has it (ModelDirError), or its model_dir is gone (LostDirectoryError).
        """
        check_task()
        if self._loss is not None:
            raise self._loss

    def schema_to_predict(self) -> InputSchema | None:
        """Return the input schema with which the trained model predicts; None if only later calls show it."""
        assert self.plan.model.schema is not None, "every plan has one"
        return schema_to_predict(self._estimator.caller, self.plan.model.schema)

    def note_run(self, run_id: str) -> None:
        """Record the MLflow run, so that a resumed job continues it."""
        self.record = self._file.update(run_id=run_id)

    def note_flow_runs(self, flow_runs: Mapping[str, str | None]) -> None:
        """Record the Prefect flow runs of the attempts, and their pages, so that a resumed job names them."""
        self.record = self._file.update(flow_runs=dict(flow_runs))

    def note_workers(self, least: int) -> None:
        """Record that the job runs on a cluster, and how many workers it may have.

        Where each worker reads data that no other one does, none may be missing.
        """
        most = self.num_workers
        least = most if self._train_spec.each_worker_reads_all else least
        self.record = self._file.update(workers={"least": least, "most": most, "wanted": None})

    def wanted_workers(self) -> int | None:
        """Return how many workers the job is to have by ``psflow scale``, some seconds ago; None before the first."""
        return self._wanted_workers

    def note_ended(self, step: int) -> None:
        """Record that all roles ended at `step`."""
        self.record = self._file.update(ended_step=step)

    def end_reason(self) -> str | None:
        """Return the reason for which the last attempt that trained has ended; None until an end is recorded."""
        finished = read_finished(self.model_dir)
        return None if finished is None else self._reason(self.record, finished)

    def note_completed(self) -> None:
        """Record that the results of the recorded end are complete."""
        self.record = self._file.update(completed_step=self.record.facts[ENDED_STEP])

    def run_here(self, on_event: Callable[[Event], None], writer: ModelWriter | None = None) -> dict[str, Any]:
        """Run the job in this process; return the report of each role. Blocks.

        It reuses the results of the plan: the training input_fn is not called again, nor is model_fn only to see what
        it builds.
        """
        job = self.job(writer)
        called = self.plan.called.read_to_the_end()
        here = replace(job, train_spec=replace(job.train_spec, input_fn=called))
        return run_local(here, on_event, self.check, self.plan.built)

    def job(self, writer: ModelWriter | None = None) -> JobSpec:
        """Return the description that every role receives, with a fresh secret."""
        estimator, store = self._estimator, CheckpointStore(self.model_dir)
        latest = store.latest()
        facts = None if latest is None else store.manifest(latest).job
        owner = self.record.owner
        assert owner is not None, "only the owner passes it on"
        return JobSpec(
            job_id=self.record.job_id,
            token=secrets.token_hex(16),
            attempt=self.number,
            model_dir=estimator.model_dir,
            owner=owner,
            model_fn=estimator.caller.model_fn,
            params=estimator.caller.params,
            config=self._config,
            train_spec=self._train_spec,
            eval_specs=self._eval_specs,
            model=self.plan.model,
            optimizers=self.plan.optimizers,
            input=self.plan.input,
            seed=self.seed,
            num_ps=self._num_ps,
            num_workers=self.num_workers,
            transport=self._transport,
            writer=writer,
            finished_step=self.record.facts.get("finished_step") if self._reads_again else None,
            warm_start=self.warm_start,
            num_steps_before=latest or 0,
            num_examples_before=0 if facts is None else facts["num_examples"],
            end_reason=self._end_reason,
            substitute_batch=self.plan.substitute_batch,
            last_incarnation_before=0 if facts is None else max((i for _, i, _ in facts["sequences"]), default=0),
        )

    log_event = staticmethod(log_event)

    def _take_over(self, record: JobRecord) -> None:
        for sentence in (*self.plan.ignored, *self.plan.doubts, *filter(None, [self._lost_job])):
            logger.warning("%s", sentence)
        begun = {} if self._fork is None else self._fork.facts()
        self.number = int({**record.facts, **begun}.get("attempts", 0)) + 1
        noted_before = dict.fromkeys((ENDED_STEP, COMPLETED_STEP, "workers"))
        facts: dict[str, Any] = {**begun, "attempts": self.number, "seed": self.seed, **noted_before}
        facts[CODE_DIGEST] = self._code_digest()
        finished = read_finished(self.model_dir)
        if finished is not None:
            facts |= {"finished_step": finished.final_step, "finished_reason": self._reason(record, finished)}
        self.record = self._file.update(**facts)
        clear_finished(self.model_dir)
        self._kept.write(self.plan.datasets)
        if self._fork is not None:
            self._fork.copy(self.record.facts[FORKED_FROM]["step"])

    @staticmethod
    def _reason(record: JobRecord, finished: FinishedMarker) -> str:
        """Return why the training of a marker ended: an attempt that trained no step does not change it."""
        trained_none = record.facts.get("finished_step") == finished.final_step
        return str(record.facts.get("finished_reason", finished.reason)) if trained_none else finished.reason

    def _code_digest(self) -> str | None:
        caller = self._estimator.caller
        return code_digest(
            caller.model_fn, caller.params, self._train_spec, self._eval_specs, self.plan.optimizers, self.warm_start
        )

    def _release(self) -> None:
        """Release the job for the next owner; a failure must not hide the error that ended this attempt."""
        try:
            self._file.release()
        except (PsflowError, OSError) as error:
            logger.warning("cannot release %s, which stays owned until this process ends: %s", self.model_dir, error)

    def _collect_garbage(self) -> None:
        """Remove the checkpoints that were kept only until their evaluation."""
        config = self._config
        CheckpointStore(self.model_dir).collect_garbage(
            config.keep_checkpoint_max,
            config.keep_checkpoint_every_n_hours,
            time.time(),
            protected=best_steps(self._eval_specs, self.model_dir),
        )

    def _renew(self, released: threading.Event) -> None:
        fault = ""
        while not released.wait(RENEW_SECS):
            try:
                workers = self._file.renew().facts.get("workers")
                self._wanted_workers = None if workers is None else workers["wanted"]
            except (ModelDirError, LostDirectoryError) as error:
                if self._released is released:  # else it was released, and is held again
                    self._loss = error
                return
            except (PsflowError, OSError) as error:
                if str(error) != fault:
                    fault = str(error)
                    logger.warning("cannot renew the lease of %s, trying again: %s", self.model_dir, error)


def _check_no_cluster(config: RunConfig) -> None:
    """Refuse to train outside the cluster to which this process belongs: each of its processes would train alone."""
    if (task := config.cluster) is not None:
        who = f"{task.task_type} {task.task_id} of a cluster whose chief is at {task.cluster.chief}"
        remedy = "call train_and_evaluate without a client in each process of it, or leave that cluster out"
        raise UsageError((f"this process is {who}, but this call trains without the cluster; {remedy}",))


def job_seed(model_dir: str, wanted: int | None) -> int:
    """Return the seed of the job of `model_dir`: the `wanted` one, else that of its first attempt, else a new one."""
    if wanted is not None:
        return wanted
    known = JobFile(model_dir).read()
    return int(known.facts["seed"]) if known is not None and "seed" in known.facts else secrets.randbits(31)
