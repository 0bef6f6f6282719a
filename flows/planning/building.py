"""Builds an Estimator, a TrainSpec and EvalSpecs from the parameters of a flow."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from pydantic import ValidationError

from psflow.flows.parameters.input import DataInput, FunctionInput
from psflow.flows.parameters.model import NESTED, CannedModel, FunctionModel
from psflow.flows.parameters.stages import ScheduleParameters
from psflow.flows.parameters.train import TrainParameters
from psflow.flows.parameters.user_modules import find, look_in, own_parameters
from psflow.ps_runtime.config.files import Origin
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.estimator.attempt import job_seed
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.model_dir import check_location
from psflow.ps_runtime.model.best import better
from psflow.ps_runtime.model.export.exporters import BestExporter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.specs.run_config import RunConfig

if TYPE_CHECKING:
    from prefect.schedules import Schedule


@dataclass(frozen=True)
class Training:
    """Estimator and specs of a training flow."""

    estimator: Estimator
    train_spec: TrainSpec
    eval_specs: tuple[EvalSpec, ...]


def build_training(parameters: TrainParameters) -> Training:
    """Build the Estimator and specs of `parameters`.

    Raises
    ------
    ConfigError
        If a function of the user cannot be found.
    UsageError
        If model_dir is neither a local directory nor on S3.
    """
    check_location(parameters.model_dir)
    look_in(parameters.code_dir)
    seed = job_seed(parameters.model_dir, parameters.seed)
    train = parameters.train
    config = RunConfig(
        model_dir=parameters.model_dir,
        tf_random_seed=seed,
        save_summary_steps=train.save_summary_steps,
        save_checkpoints_steps=train.save_checkpoints_steps,
        save_checkpoints_secs=train.save_checkpoints_secs,
        keep_checkpoint_max=train.keep_checkpoint_max,
        log_step_count_steps=train.log_step_count_steps,
        consistency=train.consistency.build(),
        pipeline_depth=parameters.pipeline_depth,
        step_deadline=parameters.cluster.step_deadline.build(),
        wire=parameters.wire.build(),
    )
    return Training(
        _estimator(parameters, config),
        TrainSpec(
            _input_fn(parameters.input.train, "input.train", seed),
            train.max_steps,
            non_finite=parameters.input.train.non_finite,
            each_worker_reads_all=train.each_worker_reads_all,
        ),
        tuple(_eval_specs(parameters, seed)),
    )


def _eval_specs(parameters: TrainParameters, seed: int) -> Iterator[EvalSpec]:
    first, best = parameters.eval, parameters.best
    yield EvalSpec(
        _input_fn(parameters.input.eval, "input.eval", seed),
        first.steps,
        first.name,
        exporters=BestExporter(
            "best",
            compare_fn=better(best.metric, best.mode, "best.metric"),
            exports_to_keep=best.exports_to_keep,
        ),
        start_delay_secs=first.start_delay_secs,
        throttle_secs=first.throttle_secs,
        non_finite=parameters.input.eval.non_finite,
    )
    for name, further in parameters.evals.items():
        input_fn = _input_fn(further.input, f"evals.{name}.input", seed)
        yield EvalSpec(
            input_fn,
            further.steps,
            name,
            start_delay_secs=further.start_delay_secs,
            throttle_secs=further.throttle_secs,
            non_finite=further.input.non_finite,
        )


def _estimator(parameters: TrainParameters, config: RunConfig) -> Estimator:
    model = parameters.model
    settings: dict[str, Any] = {"config": config}
    if parameters.warm_start is not None:
        settings["warm_start_from"] = parameters.warm_start.build()
    match model:
        case CannedModel():
            estimator: Estimator = model.params.kind(**model.params.arguments(), **settings)
            return estimator
        case FunctionModel():
            found = find(model.name, "model.name")
            if _is_torch_module(found, model):
                return _torch_estimator(found, model, settings)
            if isinstance(found, type) and issubclass(found, Estimator):
                params = own_parameters(found, model.params, NESTED, "model.params")
                _check_takes(found, model.name, settings)
                return found(**params.arguments(), **settings)
            return Estimator(_function(found, model.name, "model.name"), params=model.params, **settings)
        case unknown:
            assert_never(unknown)


def _is_torch_module(found: Any, model: FunctionModel) -> bool:
    """Return whether a configuration names a torch module, or with a head or a loss, what builds one.

    Raises ConfigError if it has keys of a torch module, but names an Estimator; or lacks them.
    """
    torch = sys.modules.get("torch")  # which a module of the user would have imported
    is_module = torch is not None and isinstance(found, type) and issubclass(found, torch.nn.Module)
    given = [key for key in ("head", "loss", "optimizer") if getattr(model, key) is not None]
    is_estimator = isinstance(found, type) and issubclass(found, Estimator)
    if is_module and (model.head is None) == (model.loss is None):
        reason = "expected for a torch module, a head or a loss" if model.head is None else "expected one of the two"
        raise ConfigError((f"model.head, model.loss: {reason}",))
    if given and (is_estimator or (not is_module and (model.head is None) == (model.loss is None))):
        raise ConfigError(
            (f"model.{given[0]}: only for a torch module, but {model.name} is none; give it in model.params",)
        )
    return is_module or bool(given)


def _torch_estimator(found: Any, model: FunctionModel, settings: Mapping[str, Any]) -> Estimator:
    from psflow.ps_runtime.estimator.torch_estimator import DEFAULT_OPTIMIZER, TorchEstimator  # imports torch
    from psflow.ps_runtime.torch_modules.module import argument_faults

    if faults := argument_faults(found, model.params):
        raise ConfigError(tuple(f"model.params: {fault}" for fault in faults))

    return TorchEstimator(
        found,
        None if model.head is None else model.head.build(),
        DEFAULT_OPTIMIZER if model.optimizer is None else model.optimizer.build(),
        params=model.params,
        loss=None if model.loss is None else _loss(model.loss),
        **settings,
    )


def _loss(name: str) -> Callable[..., Any]:
    """Return the function of a loss, or an instance of its class with its defaults."""
    found = _function(find(name, "model.loss"), name, "model.loss")
    return found() if isinstance(found, type) else found


def _check_takes(kind: type[Estimator], name: str, settings: Mapping[str, Any]) -> None:
    """Refuse settings that have no parameter in the user's Estimator."""
    taken = inspect.signature(kind).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken.values()):
        return
    if missing := sorted(settings.keys() - taken.keys()):
        raise ConfigError(
            (f"model.name: {name} has no parameter {', '.join(missing)}; add it, and pass it to Estimator.__init__",)
        )


def _input_fn(source: DataInput | FunctionInput, key: str, seed: int) -> Callable[..., Any]:
    if isinstance(source, DataInput):
        return partial(open_dataset, source.build(), **source.batching(training=key == "input.train", seed=seed))
    function = _function(find(source.name, f"{key}.name"), source.name, f"{key}.name")
    return partial(function, params=source.params) if source.params else function


def _function(found: Any, name: str, key: str) -> Callable[..., Any]:
    if not callable(found):
        raise ConfigError((f"{key}: {name!r} is a {type(found).__name__}, expected a function",))
    function: Callable[..., Any] = found
    return function


def schedule_of(wanted: ScheduleParameters, origins: Mapping[str, Origin]) -> Schedule:
    """Return a schedule for Prefect.

    Raises ConfigError if Prefect refuses the cron expression or the time zone, or the expression never matches.
    """
    from prefect._vendor.croniter.croniter import CroniterBadDateError, croniter  # as CronSchedule does
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.schedules import Cron, Interval

    if wanted.interval_secs is not None:
        return Interval(timedelta(seconds=wanted.interval_secs), timezone=wanted.timezone)
    try:
        CronSchedule(cron=str(wanted.cron), timezone=wanted.timezone)  # Cron itself does not check the time zone
        croniter(wanted.cron).get_next()  # neither checks whether it ever matches
        return Cron(str(wanted.cron), timezone=wanted.timezone)
    except ValidationError as error:
        faults = [(f"schedule.{'.'.join(map(str, fault['loc']))}", str(fault["msg"])) for fault in error.errors()]
    except CroniterBadDateError:
        faults = [("schedule.cron", f"{wanted.cron!r} never matches a date")]
    raise ConfigError(tuple(f"{origins.get(key, origins['schedule'])}: {key}: {reason}" for key, reason in faults))
