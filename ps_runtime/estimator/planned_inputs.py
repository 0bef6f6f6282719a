"""Opens the inputs of a job for its plan, and reads the first batch of each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from psflow.ps_runtime.data.enforcement import Enforcement, schema_of
from psflow.ps_runtime.data.input_pipeline import InputContext, call_input_fn, open_input
from psflow.ps_runtime.data.non_finite import RefusedCellsError
from psflow.ps_runtime.data.reading_progress import watched_call
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.data.user_code import user_code
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.mode_reads import ModeReads, read_in_any_mode
from psflow.ps_runtime.model.evaluation import batches_of
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec, input_names
from psflow.ps_runtime.specs.schema import InputSchema

NO_OTHER_BATCH = (
    " for the chief, and no other batch shows the variables of the model; let the input_fn take input_context, so that "
    "the parts of the workers can be read, too, call train_and_evaluate, or give the chief a part"
)

Batch = tuple[Any, Any]

logger = logging.getLogger(__name__)


class PlannedInput:
    """The result of an input_fn, its name in messages, and its features that the model does not read."""

    def __init__(
        self,
        spec: TrainSpec | EvalSpec,
        mode: ModeKeys,
        caller: ModelCaller,
        name: str,
        schema: InputSchema | None,
        kept: KeptInputs,
        context: InputContext | None = None,
    ) -> None:
        replica = 0 if context is None else context.input_pipeline_id
        self.where = f"the {name} input" + (f" of worker-{replica - 1}" if replica else "")
        self.who = "training" if mode == ModeKeys.TRAIN else "the model"
        self.unused: list[str] = []
        self._input_fn = spec.input_fn
        self._mode = mode
        with user_code(spec.input_fn, InputError, f"in {mode} mode"):
            self.called = call_input_fn(
                spec.input_fn,
                context,
                mode=mode,
                params=caller.params,
                config=caller.config,
                input_schema=None if mode == ModeKeys.TRAIN else schema,
            )
            self.opened = open_input(
                self.called,
                mode=mode,
                non_finite=spec.non_finite,
                enforcement=Enforcement(
                    schema,
                    self.where,
                    on_unused=self.unused.extend,
                    reads=ModeReads.of(caller, spec)
                    if isinstance(spec, EvalSpec)
                    else partial(read_in_any_mode, caller),
                ),
                kept=kept.earlier(name),
            )

    def schema(self, first: Batch) -> InputSchema:
        """Return the schema, given the first batch."""
        return self.opened.schema() if isinstance(self.opened, SplittableInput) else schema_of(*first)

    def look(self) -> Batch | None:
        """Return the first batch; None if there is none."""
        with user_code(self._input_fn, InputError, f"in {self._mode} mode"), watched_call(f"reading {self.where}"):
            return next(iter(batches_of(self.opened)), None)

    def first_batch(self) -> Batch:
        """Return the first batch; InputError if there is none."""
        if (batch := self.look()) is None:
            raise self.without_batch()
        return batch

    def without_batch(self, why: str = "") -> InputError:
        """Return the error of an input without a batch."""
        return InputError((f"the input_fn for {self._mode} returned no batch{why}",))


def first_of_training(
    training: PlannedInput,
    caller: ModelCaller,
    train_spec: TrainSpec,
    eval_specs: Sequence[EvalSpec],
    num_replicas: int,
    kept: KeptInputs,
) -> tuple[Batch, PlannedInput]:
    """Return the batch that determines the variables and the schema, and its input.

    It is the first one of the training input. Where the chief reads a part of its own, which is empty, it is the first
    one of an evaluation, or else of the part of another replica.

    Raises InputError if they are empty, too.
    """
    if (batch := training.look()) is not None:
        return batch, training
    if not train_spec.each_worker_reads_all or num_replicas == 1:
        raise training.without_batch()
    if eval_specs:
        sources = iter(eval_inputs(caller, eval_specs[:1], None, kept).values())
    elif training.called.takes_context:
        contexts = (InputContext(num_replicas, replica) for replica in range(1, num_replicas))
        sources = (training_input(caller, train_spec, (), context, kept) for context in contexts)
    else:
        raise training.without_batch(NO_OTHER_BATCH)
    for source in sources:
        if (batch := source.look()) is not None:
            logger.info("the part of the chief of the train input is empty: the job is planned from %s", source.where)
            return batch, source
    raise source.without_batch("" if eval_specs else f" in any of its {num_replicas} input pipelines")


def training_input(
    caller: ModelCaller,
    train_spec: TrainSpec,
    eval_specs: Sequence[EvalSpec],
    context: InputContext,
    kept: KeptInputs,
) -> PlannedInput:
    """Open the training input; if its cells are refused, raise InputError with the faults of all inputs."""
    try:
        return PlannedInput(train_spec, ModeKeys.TRAIN, caller, "train", None, kept, context)
    except RefusedCellsError as error:
        refused = error
    try:
        eval_inputs(caller.reading(refused.schema), eval_specs, refused.schema, kept)
    except InputError as error:
        raise InputError(tuple(dict.fromkeys([*refused.faults, *error.faults]))) from error.__cause__
    raise refused


def eval_inputs(
    caller: ModelCaller, eval_specs: Sequence[EvalSpec], schema: InputSchema | None, kept: KeptInputs
) -> dict[str, PlannedInput]:
    """Open the inputs of evaluations; raise InputError with the faults of all of them."""
    opened: dict[str, PlannedInput] = {}
    faults: list[str] = []
    cause: BaseException | None = None
    for name, spec in zip(input_names(eval_specs), eval_specs, strict=True):
        try:
            opened[name] = PlannedInput(spec, ModeKeys.EVAL, caller, name, schema, kept)
        except InputError as error:
            faults += error.faults
            cause = cause or error.__cause__
    if faults:
        raise InputError(tuple(dict.fromkeys(faults))) from cause
    return opened
