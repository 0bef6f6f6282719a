"""What can be known of a job before anything starts: its model, its input, and whether they fit each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ps_runtime.checkpoint.store import CheckpointStore
from ps_runtime.data.dataset import Dataset
from ps_runtime.data.input_pipeline import InputContext, open_input
from ps_runtime.errors import InputError, ModelDirError, ModelFnError
from ps_runtime.model.caller import BuiltModel, ModelCaller
from ps_runtime.model.evaluation import batches_of
from ps_runtime.model.spec import ModeKeys
from ps_runtime.model.training import EvalSpec, TrainSpec
from ps_runtime.specs.input import InputSpec
from ps_runtime.specs.variables import ModelSpec

__all__ = ["JobPlan", "check_model_dir", "plan_job"]

MAX_SPLIT_BATCHES = 64
SPLITS_PER_REPLICA = 4
"""Splits that each replica reads of an epoch, at least: more of them end an epoch more evenly."""

LabelCheck = Callable[[Any, str], None]
"""Takes the labels of a whole data set and what to call it; raises InputError."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What the first call of model_fn and a look at the input have shown."""

    model: ModelSpec
    input: InputSpec
    datasets: Mapping[str, Dataset]
    """The inputs that are data sets, by ``train`` and ``eval``."""


def plan_job(
    caller: ModelCaller,
    train_spec: TrainSpec,
    eval_spec: EvalSpec | None,
    seed: int,
    num_replicas: int,
    check_labels: LabelCheck,
) -> JobPlan:
    """Open the inputs and call model_fn on a batch of each, as the roles will.

    Raises
    ------
    ModelFnError, InputError
        Whatever is wrong with model_fn or the inputs, before anything has started.
    """
    context = InputContext(num_replicas, 0)
    opened = open_input(train_spec.input_fn, context, mode=ModeKeys.TRAIN, params=caller.params)
    inputs = {"train": opened}
    if eval_spec is not None:
        inputs["eval"] = open_input(eval_spec.input_fn, mode=ModeKeys.EVAL, params=caller.params)
    datasets = {name: data for name, data in inputs.items() if isinstance(data, Dataset)}
    for name, dataset in datasets.items():
        check_labels(dataset.labels, f"the {name} input")
    built = _first_call(caller, opened, ModeKeys.TRAIN, seed)
    if eval_spec is not None:
        _same_variables(caller, built, _first_call(caller, inputs["eval"], ModeKeys.EVAL, seed))
    return JobPlan(built.model, _input_spec(opened, num_replicas), datasets)


def check_model_dir(model_dir: str, model: ModelSpec) -> None:
    """Refuse a model_dir whose latest checkpoint is of another model.

    Raises
    ------
    ModelDirError
        Saying each difference.
    """
    store = CheckpointStore(model_dir)
    latest = store.latest()
    if latest is None:
        return
    differences = store.manifest(latest).model.differences(model)
    if differences:
        raise ModelDirError(
            (
                f"{model_dir} holds checkpoints of another model (the latest is of step {latest}); "
                "choose another model_dir, or restore the model:",
                *differences,
            )
        )


def _first_call(caller: ModelCaller, opened: Any, mode: ModeKeys, seed: int) -> BuiltModel:
    batch = next(iter(batches_of(opened)), None)
    if batch is None:
        raise InputError((f"the input_fn for {mode} gave no batch at all",))
    return caller.build(*batch, mode, seed)


def _same_variables(caller: ModelCaller, trained: BuiltModel, evaluated: BuiltModel) -> None:
    faults = [
        f"{caller.name} creates variable {name!r} in {ModeKeys.EVAL} but not in {ModeKeys.TRAIN}, or with another shape"
        for name, declared in evaluated.declared.items()
        if name not in trained.declared or trained.declared[name].shape != declared.shape
    ]
    if faults:
        raise ModelFnError(tuple(faults))


def _input_spec(opened: Any, num_replicas: int) -> InputSpec:
    if not isinstance(opened, Dataset):
        return InputSpec(None)
    num_batches = -(-opened.num_records // opened.batch_size)
    split_batches = max(1, min(MAX_SPLIT_BATCHES, num_batches // (SPLITS_PER_REPLICA * num_replicas)))
    return InputSpec(opened.num_records, opened.batch_size, opened.num_epochs, split_batches)
