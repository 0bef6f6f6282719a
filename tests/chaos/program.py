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
    CheckpointSaverListener,
    Dataset,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    GradientDescent,
    ModeKeys,
    RunConfig,
    SparseGradient,
    StepDeadline,
    Sync,
    TrainSpec,
    embedding_lookup,
    get_variable,
)
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.client.shard_client import ShardClient
from psflow.ps_runtime.protocol.message import Kind, Message
from psflow.ps_runtime.specs.consistency import Consistency
from tests.chaos.gates import Gates
from tests.chaos.trials import NUM_WORKERS, Fault, Input, Parameters, Phase, Trial, Update

MAX_STEPS = 200
SAVE_STEPS = 40
BEST_STEP = 120
"""The loss is least here, so that not every checkpoint is the best so far."""
FAULT_STEP = 40
"""The first checkpoint that a gate is for; the one of step 0 is written before training."""
HOLD_STEP = 160
"""Where training waits for lost roles."""
MID_STEP = (Phase.TRAINING, Phase.PUSH, Phase.ANSWER)
"""The phases in which a replica waits for the fault."""
HELD_STEPS = 3
"""The step of its own in which a replica waits for the fault, after all have made a first one."""
NUM_RECORDS = 100
BATCH_SIZE = 4
NUM_BATCHES = NUM_RECORDS // BATCH_SIZE
TABLE = "records"
NUM_ROWS = NUM_RECORDS + 2
"""A row of the table counts each record, and the last two, one of each ps, count the updates."""
EXPORTER = "best"
BRIEF = StepDeadline(min_secs=0.5)
"""Where a worker that is stopped is to be found out."""
AMPLE = StepDeadline(min_secs=600.0, max_secs=600.0)
"""Where the gates alone make steps long."""

CHIEF = "chief-0"
TRAINERS = (CHIEF, *(f"worker-{i}" for i in range(NUM_WORKERS)))


def counters(num_ps: int) -> list[str]:
    """Return the variables that count the updates: one for each ps."""
    return [f"num_updates_{i}" for i in range(num_ps)]


class Program:
    """What the roles of a trial run; each has a copy of it in its process."""

    def __init__(self, trial: Trial, gates: Gates) -> None:
        self.trial = trial
        self.gates = gates
        self._num_steps = 0

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
        num_updates = float(values[0])
        if config.task_type == "evaluator":
            if num_updates >= FAULT_STEP:
                self.gates.pass_through(Phase.EVALUATION)
        elif config.num_ps_replicas:
            self._wait(f"{config.task_type}-{config.task_id}", num_updates)
        return EstimatorSpec(
            mode,
            loss=np.abs(values[0] - BEST_STEP),
            train_op=GradientDescent(1.0).apply_gradients(gradients),
        )

    def _wait(self, role: str, num_updates: float) -> None:
        """Wait in a replica, in the middle of a step."""
        self._num_steps += 1
        if role == CHIEF and self._num_steps == 1:
            self.gates.pass_through(Phase.START)
        self.gates.begin(role)
        if self._num_steps == 2:
            for other in TRAINERS:  # so that each takes part, before some use up the tickets
                self.gates.await_begin(other)
        if self._num_steps == HELD_STEPS and role == self._holder:
            self.gates.pass_through(Phase.TRAINING)
            gate_pushes(self.gates)
        is_awaited = self.trial.phase in MID_STEP and role == self._holder and not self.gates.is_reached
        if num_updates >= HOLD_STEP and not is_awaited:
            self.gates.await_recovery()

    @property
    def _holder(self) -> str:
        """The replica that waits in the middle of a step."""
        return next((name for name in self.trial.target.value if name in TRAINERS), CHIEF)

    def write(self, directory: str, bundle: Any) -> None:
        """Write an export: the program is its own ModelWriter."""
        if bundle.global_step >= FAULT_STEP:
            self.gates.pass_through(Phase.EXPORT)
        Path(directory).mkdir()
        (Path(directory) / "step").write_text(str(bundle.global_step))


def gate_pushes(gates: Gates) -> None:
    """Have each push of this process, which is of one trial alone, wait before and after its way to ps-0."""
    send = ShardClient.send

    def gated(client: ShardClient, message: Message) -> None:
        is_last_part = message.kind is Kind.PUSH and client.connection.peer.startswith("ps-0 ")
        if is_last_part:
            gates.pass_through(Phase.PUSH)
        send(client, message)
        if is_last_part:
            gates.pass_through(Phase.ANSWER)

    ShardClient.send = gated  # type: ignore[method-assign]


class CheckpointGates(CheckpointSaverListener):
    """Waits in the chief: before the copy of a checkpoint, and before its manifest."""

    def __init__(self, gates: Gates) -> None:
        self.gates = gates

    def before_save(self, session: Any, global_step: int) -> None:
        """Wait while all replicas do, and have the commit wait, too."""
        store = session._store  # no listener is called between the files and the manifest

        def commit(manifest: Manifest) -> Manifest:
            if manifest.step >= FAULT_STEP:
                self.gates.pass_through(Phase.COMMIT)
            if manifest.step == MAX_STEPS:
                self.gates.pass_through(Phase.FINISH)
            return CheckpointStore.commit(store, manifest)

        store.commit = commit
        if global_step >= FAULT_STEP:
            self.gates.pass_through(Phase.CUT)


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


def job_of(trial: Trial, model_dir: Path, gates: Gates) -> tuple[Estimator, TrainSpec, EvalSpec, Program]:
    """Return what an `Attempt` at the job of a trial takes; the program is the writer of its exports."""
    program = Program(trial, gates)
    config = RunConfig(
        tf_random_seed=1,
        save_checkpoints_steps=SAVE_STEPS,
        keep_checkpoint_max=None,
        consistency=_consistency(trial.update),
        pipeline_depth=trial.pipeline_depth,
        step_deadline=BRIEF if trial.fault is Fault.STOP else AMPLE,
    )
    train_spec = TrainSpec(
        _input_fn(trial.input),
        MAX_STEPS,
        saving_listeners=[CheckpointGates(gates)],
        each_worker_reads_all=trial.input is Input.EACH_READS_ALL,
    )
    eval_spec = EvalSpec(records, None, exporters=[BestExporter(EXPORTER)], start_delay_secs=0, throttle_secs=0)
    return Estimator(program.model_fn, str(model_dir), config), train_spec, eval_spec, program


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
