"""What the methods of an Estimator accept as arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from psflow.ps_runtime.errors import ModelFnError, UsageError
from psflow.ps_runtime.model.caller import ModelCaller
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = [
    "check_name",
    "check_params",
    "check_texts",
    "checked_config",
    "checked_keys",
    "checked_steps",
]


def checked_config(
    model_dir: str | os.PathLike[str] | None, config: RunConfig | None, params: Mapping[str, Any] | None
) -> RunConfig:
    """Return the settings of an Estimator, its model_dir among them; None stands for none.

    Raises
    ------
    UsageError
        If two different model_dirs are given, or an empty one, or none for a process of a cluster; an ArgumentTypeError
        if an argument is of a wrong type.
    """
    if isinstance(model_dir, os.PathLike):
        model_dir = os.fspath(model_dir)
    faults = ArgumentFaults("Estimator: ")
    faults.text("model_dir", model_dir)
    if config is not None and not isinstance(config, RunConfig):
        faults.add_type("config", "a RunConfig or None", config)
    if params is not None and not isinstance(params, Mapping):
        faults.add_type("params", "a mapping or None", params)
    faults.raise_any()
    config = RunConfig() if config is None else config
    if model_dir is None and config.model_dir is None and config.cluster is not None:  # each would make one of its own
        raise UsageError(
            ("this process is one of a cluster, and no model_dir is given: give a directory that all processes see",)
        )
    if model_dir is None or model_dir == config.model_dir:
        return config
    if config.model_dir is not None:
        raise UsageError(
            (f"model_dir is {model_dir!r}, but that of config is {config.model_dir!r}; give only one of them",)
        )
    return config.replace(model_dir=model_dir)


def check_params(caller: ModelCaller) -> None:
    """Raise ModelFnError if there are hyper-parameters that model_fn does not take."""
    if caller.params and not caller.takes_params:
        names = ", ".join(map(str, caller.params))
        raise ModelFnError((f"{caller.name} does not take the argument 'params', but params are given: {names}",))


def checked_steps(steps: int | None) -> int | None:
    """Return a number of steps, or None; UsageError if it is not greater than 0, or no whole number."""
    faults = ArgumentFaults()
    number = faults.steps("steps", steps)
    faults.raise_any()
    return number


def checked_keys(predict_keys: Sequence[str] | None, yield_single_examples: bool) -> Sequence[str]:
    """Return the names of predictions; none of them stands for all. ArgumentTypeError if one is another kind."""
    faults = ArgumentFaults()
    keys = faults.items("predict_keys", predict_keys, str, "str")
    faults.flag("yield_single_examples", yield_single_examples)
    faults.raise_any()
    return keys


def check_name(given: Any) -> None:
    """Raise ArgumentTypeError if the name of a variable or a table is no str."""
    faults = ArgumentFaults()
    if not isinstance(given, str):
        faults.add_type("name", "a str", given)
    faults.raise_any()


def check_texts(**arguments: Any) -> None:
    """Raise ArgumentTypeError if one of the arguments is neither a str nor None."""
    faults = ArgumentFaults()
    for name, given in arguments.items():
        faults.text(name, given)
    faults.raise_any()
