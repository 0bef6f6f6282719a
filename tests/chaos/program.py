"""The job of a trial: a model whose values count the updates, and what waits at the gates in its roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, assert_never

import autograd.numpy as np

from psflow import (
    Async,
    BestExporter,
    BoundedStaleness,
    Dataset,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    GradientDescent,
    ModeKeys,
    RunConfig,
    SessionRunHook,
    SparseGradient,
    StepDeadline,
    Sync,
    TrainSpec,
    embedding_lookup,
    get_variable,
)
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.specs.consistency import Consistency
from tests.chaos.gates import Gates
from tests.chaos.gating import gate_checkpoints, gate_messages
from tests.chaos.trials import STOPPED_SECS, Fault, Input, Parameters, Phase, Trial, Update

MAX_STEPS = 200
SAVE_STEPS = 40
BEST_STEP = 120
"""The loss is least here, so that not every checkpoint is the best so far."""
LOG_STEPS = 5
FAULT_STEP = 40
"""The first checkpoint that a gate is for; the one of step 0 is written before training."""
HOLD_STEP = 160
"""Where training waits for lost roles."""
MID_STEP = (Phase.IDLE, Phase.PULL, Phase.TRAINING, Phase.PUSH, Phase.ANSWER)
"""The phases in which replicas wait for the fault after their first steps."""
HELD_STEPS = 3
"""The step of its own in which a replica waits for the fault, after all have made a first one."""
NUM_RECORDS = 100
BATCH_SIZE = 4
NUM_BATCHES = NUM_RECORDS // BATCH_SIZE
TABLE = "records"
NUM_ROWS = NUM_RECORDS + 2
"""A row of the table counts each record, and the last two, one of each ps, count the updates."""
EXPORTER = "best"
STEP_FILE = f"of_step_{BEST_STEP}"
"""In an export that is of that step."""
BRIEF = StepDeadline(min_secs=0.5)
"""Where a worker that is stopped is to be found out."""
AMPLE = StepDeadline(min_secs=600.0, max_secs=600.0)
"""Where the gates alone make steps long."""

NUM_OTHER_ROLES = 2
"""The chief and the evaluator."""
CHIEF = "chief-0"


def trainers_of(trial: Trial) -> list[str]:
    """Return the replicas of a trial."""
    return [CHIEF, *(f"worker-{i}" for i in range(trial.num_workers))]


def num_slots(trial: Trial) -> int:
    """Return how many roles the job of a trial has."""
    return trial.num_ps + trial.num_workers + NUM_OTHER_ROLES


def counters(num_ps: int) -> list[str]:
    """Return the variables that count the updates: one for each ps."""
    return [f"num_updates_{i}" for i in range(num_ps)]


class Program:
    """What the roles of a trial run; each has a copy of it in its process."""

    def __init__(self, trial: Trial, gates: Gates) -> None:
        self.trial = trial
        self.gates = gates
        self.trainers = trainers_of(trial)
        self.num_steps = 0
        """Of this process."""

    def model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        """Count the updates, and wait where the trial wants it."""
        values = [get_variable(name, initializer=0.0) for name in counters(self.trial.num_ps)]
        gradients: dict[str, Any] = dict.fromkeys(counters(self.trial.num_ps), np.float32(-1))
        if self.trial.parameters is Parameters.ROWS:
            ids = np.append(features["record"], [NUM_RECORDS, NUM_RECORDS + 1])
            embedding_lookup(TABLE, ids, NUM_ROWS, 1, initializer="zeros")
            gradients[TABLE] = SparseGradient(ids, np.full((len(ids), 1), -1, np.float32))
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions={"num_updates": values[0] + 0 * features["record"]})
        num_updates, role = float(values[0]), f"{config.task_type}-{config.task_id}"
        if config.task_type == "evaluator":
            if num_updates >= FAULT_STEP:
                self.gates.pass_through(Phase.EVALUATION)
        elif config.num_ps_replicas:
            self._wait(role, num_updates)
        return EstimatorSpec(
            mode,
            loss=np.abs(values[0] - BEST_STEP),
            train_op=GradientDescent(1.0).apply_gradients(gradients),
            training_hooks=[BetweenSteps(self, role)],
        )

    def _wait(self, role: str, num_updates: float) -> None:
        """Wait in a replica, in the middle of a step."""
        self.num_steps += 1
        if role == CHIEF and self.num_steps == 1:
            self.gates.pass_through(Phase.START)
            gate_checkpoints(self.gates, FAULT_STEP, MAX_STEPS)
        self.gates.begin(role)
        if self.num_steps == 2:
            for other in self.trainers:  # so that each takes part, before some use up the tickets
                self.gates.await_begin(other)
        if self.num_steps == HELD_STEPS and role == self._holder:
            self.gates.pass_through(Phase.TRAINING)
            gate_messages(self.gates, is_torn=self._is_torn)
        is_awaited = self.trial.phase in MID_STEP and role == self._holder and not self.gates.is_reached
        if num_updates >= HOLD_STEP and not is_awaited:
            self.gates.await_recovery()

    @property
    def _holder(self) -> str:
        """The replica that waits in the middle of a step."""
        return next((name for name in map(str, self.trial.target.roles) if name in self.trainers), CHIEF)

    @property
    def _is_torn(self) -> bool:
        """Whether a connection breaks by which the holder has begun to push."""
        targets = set(map(str, self.trial.target.roles))
        return self.trial.fault is Fault.DISCONNECT and bool(targets & {self._holder, "ps-0"})

    def write(self, directory: str, bundle: Any) -> None:
        """Write an export: the program is its own ModelWriter."""
        if bundle.global_step >= FAULT_STEP:
            self.gates.pass_through(Phase.EXPORT)
        Path(directory).mkdir()
        (Path(directory) / f"of_step_{bundle.global_step}").touch()


class BetweenSteps(SessionRunHook):
    """Waits in a replica after its `HELD_STEPS`th step."""

    def __init__(self, program: Program, role: str) -> None:
        self.program = program
        self.role = role

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Wait, if all replicas are to do so."""
        if self.program.num_steps == HELD_STEPS:
            self.program.gates.meet(self.role, self.program.trainers)


def records() -> Dataset:
    """Return each record once."""
    ids = np.arange(NUM_RECORDS)
    return Dataset({"record": ids}, np.zeros(NUM_RECORDS, np.float32)).batch(BATCH_SIZE)


def endless() -> Dataset:
    """Return the records without end, in their order: an input position says which were used."""
    return records().repeat()


def generator() -> Iterator[Any]:
    """Yield the records without end, as batches of a generator."""
    data = records()
    while True:
        for start in range(0, NUM_RECORDS, BATCH_SIZE):
            yield data.read(0, start, start + BATCH_SIZE)


def attempt_of(trial: Trial, model_dir: Path, gates: Gates) -> tuple[Attempt, Program]:
    """Return an attempt at the job of a trial, not begun yet; the program is the writer of its exports."""
    program = Program(trial, gates)
    config = RunConfig(
        tf_random_seed=1,
        save_checkpoints_steps=SAVE_STEPS,
        keep_checkpoint_max=None,
        consistency=_consistency(trial.update),
        pipeline_depth=trial.pipeline_depth,
        log_step_count_steps=LOG_STEPS,
        step_deadline=BRIEF if trial.fault in STOPPED_SECS else AMPLE,
    )
    train_spec = TrainSpec(
        _input_fn(trial.input),
        MAX_STEPS,
        each_worker_reads_all=trial.input is Input.EACH_READS_ALL,
    )
    eval_spec = EvalSpec(records, None, exporters=[BestExporter(EXPORTER)], start_delay_secs=0, throttle_secs=0)
    estimator = Estimator(program.model_fn, str(model_dir), config)
    transport = trial.transport.value
    attempt = Attempt(
        estimator, train_spec, eval_spec, num_ps=trial.num_ps, num_workers=trial.num_workers, transport=transport
    )
    return attempt, program


def _consistency(update: Update) -> Consistency:
    match update:
        case Update.ASYNC:
            return Async()
        case Update.SYNC:
            return Sync()
        case Update.BOUNDED_STALENESS:
            return BoundedStaleness(max_staleness=8)
        case unknown:
            assert_never(unknown)


def _input_fn(kind: Input) -> Callable[[], Any]:
    match kind:
        case Input.DEALT | Input.EACH_READS_ALL:
            return endless
        case Input.GENERATOR:
            return generator
        case unknown:
            assert_never(unknown)
