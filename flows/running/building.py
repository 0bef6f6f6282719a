"""From the parameters of a flow to an Estimator, a TrainSpec and EvalSpecs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from psflow.flows.parameters.consistency import build_consistency
from psflow.flows.parameters.input import DataInput, FunctionInput
from psflow.flows.parameters.model import CannedModel, FunctionModel
from psflow.flows.parameters.train import TrainParameters
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.errors import ConfigError, did_you_mean
from psflow.ps_runtime.estimator.attempt import job_seed
from psflow.ps_runtime.estimator.dnn_classifier import DNNClassifier
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.installed import is_installed
from psflow.ps_runtime.estimator.model_dir import check_local
from psflow.ps_runtime.model.best import better
from psflow.ps_runtime.model.exporters import BestExporter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = ["Training", "build_training"]


@dataclass(frozen=True)
class Training:
    """What a training flow trains."""

    estimator: Estimator
    train_spec: TrainSpec
    eval_specs: tuple[EvalSpec, ...]


def build_training(parameters: TrainParameters) -> Training:
    """Build what `parameters` describe.

    On a cluster of others the modules of the user's functions travel with them, and so do the modules beside these, so
    that the workers need not have them; what is installed must be installed there, too.

    Raises
    ------
    ConfigError
        If a function of the user cannot be found.
    UsageError
        If model_dir is no local directory, though exports go there.
    """
    check_local(parameters.model_dir)
    _look_in(parameters.code_dir)
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
        consistency=build_consistency(train.consistency),
        pipeline_depth=parameters.pipeline_depth,
    )
    training = Training(
        _estimator(parameters, config),
        TrainSpec(_input_fn(parameters.input.train, "input.train", seed), train.max_steps),
        tuple(_eval_specs(parameters, seed)),
    )
    if parameters.cluster.address is not None:
        for module in _user_modules(parameters):
            cloudpickle.register_pickle_by_value(module)
    return training


def _look_in(directory: str | None) -> None:
    """Let modules of the user stand in `directory`."""
    if directory is not None and (path := os.path.abspath(directory)) not in sys.path:
        sys.path.insert(0, path)


def _eval_specs(parameters: TrainParameters, seed: int) -> Iterator[EvalSpec]:
    first, best = parameters.eval, parameters.best
    yield EvalSpec(
        _input_fn(parameters.input.eval, "input.eval", seed),
        first.steps,
        first.name,
        BestExporter("best", better(best.metric, best.mode, "best.metric"), best.exports_to_keep),
        first.start_delay_secs,
        first.throttle_secs,
    )
    for name, further in parameters.evals.items():
        input_fn = _input_fn(further.input, f"evals.{name}.input", seed)
        yield EvalSpec(input_fn, further.steps, name, (), further.start_delay_secs, further.throttle_secs)


def _estimator(parameters: TrainParameters, config: RunConfig) -> Estimator:
    model = parameters.model
    if isinstance(model, CannedModel):
        params = model.params
        return DNNClassifier(params.hidden_units, params.n_classes, params.optimizer.build(), config=config)
    return Estimator(_find(model.name, "model.name"), config=config, params=model.params)


def _input_fn(source: DataInput | FunctionInput, key: str, seed: int) -> Callable[..., Any]:
    if isinstance(source, DataInput):
        return partial(open_dataset, source.spec(training=key == "input.train", seed=seed))
    function = _find(source.name, f"{key}.name")
    return partial(function, params=source.params) if source.params else function


def _user_modules(parameters: TrainParameters) -> list[ModuleType]:
    sources = (parameters.model, *parameters.sources().values())
    names = {source.name.partition(":")[0] for source in sources if isinstance(source, FunctionModel | FunctionInput)}
    named = [_file_of(importlib.import_module(name)) for name in sorted(names)]
    directories = {file.parent for file in named if file is not None and not is_installed(file)}
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name == getattr(module, "__name__", None) != "__main__"
        and (file := _file_of(module)) is not None
        and file.parent in directories
    ]


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def _find(name: str, key: str) -> Callable[..., Any]:
    """Return the function that ``package.module:function`` names."""
    module_name, _, function_name = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever the module does
        raise ConfigError((f"{key}: cannot import {module_name!r}: {_reason(error, module_name)}",)) from error
    for part in function_name.split("."):
        if not hasattr(found, part):
            near = did_you_mean(part, [n for n in dir(found) if not n.startswith("_")])
            raise ConfigError((f"{key}: {module_name!r} has no {function_name!r}{near}",))
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError((f"{key}: {name!r} is a {type(found).__name__}, expected a function",))
    function: Callable[..., Any] = found
    return function


def _reason(error: Exception, module_name: str) -> str:
    """Say why a module cannot be imported, and where it was looked for if it is not there."""
    is_missing = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
    if not is_missing:
        return f"{type(error).__name__}: {error}"
    places = [path for path in map(Path, sys.path) if path.is_dir() and not is_installed(path)]
    shown = ", ".join(dict.fromkeys(str(path.resolve()) for path in places))
    return (
        f"{error}; looked in {shown} and among the installed packages; put the module beside the configuration file, "
        "install it, or name its directory in PYTHONPATH"
    )
