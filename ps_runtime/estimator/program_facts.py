"""What the processes of a job that are started by hand must agree on of their programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.specs.run_config import RunConfig

__all__ = ["program_facts"]

OF_TRAINING = ("max_steps", "non_finite", "each_worker_reads_all")
OF_EVALUATION = ("name", "steps", "start_delay_secs", "throttle_secs", "non_finite")
OF_PROCESS = ("model_dir", "cluster")
"""Settings of a RunConfig that are compared as the cluster, or are those of one process."""


def program_facts(
    params: Mapping[str, Any], config: RunConfig, train_spec: TrainSpec, eval_specs: Sequence[EvalSpec]
) -> dict[str, str]:
    """Return the plain settings of a program as texts, by name; of an object that is none only its type.

    The code is not compared: two processes cannot tell whether their functions do the same.
    """
    settings = [field.name for field in fields(config) if field.init and field.name not in OF_PROCESS]
    found = {f"params[{name!r}]": _text(value) for name, value in params.items()}
    found |= {f"RunConfig.{name}": _text(getattr(config, name)) for name in settings}
    found |= {f"TrainSpec.{name}": _text(getattr(train_spec, name)) for name in OF_TRAINING}
    for index, spec in enumerate(eval_specs):
        found |= {f"eval_spec[{index}].{name}": _text(getattr(spec, name)) for name in OF_EVALUATION}
    return found


def _text(value: Any) -> str:
    """Return a text that is the same in two processes if the value is: addresses and the order of a set are not."""
    match value:
        case None | bool() | int() | float() | str():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_text, value))}]"
        case dict():
            return f"{{{', '.join(f'{key!r}: {_text(one)}' for key, one in value.items())}}}"
        case _:
            return f"a {type(value).__qualname__}"
