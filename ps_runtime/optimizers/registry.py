"""Optimizers by name: how a ps and a checkpoint get back the rule that a model_fn chose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.optimizers.adagrad import Adagrad
from psflow.ps_runtime.optimizers.adam import Adam
from psflow.ps_runtime.optimizers.base import Optimizer
from psflow.ps_runtime.optimizers.ftrl import Ftrl
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.optimizers.momentum import Momentum
from psflow.ps_runtime.optimizers.rms_prop import RMSProp

__all__ = ["OPTIMIZERS", "optimizer_from_config"]

OPTIMIZERS: Mapping[str, type[Optimizer]] = MappingProxyType(
    {rule.__name__: rule for rule in (GradientDescent, Momentum, Adagrad, Adam, RMSProp, Ftrl)}
)
"""Every optimizer that a ps can apply, by the name in its `Optimizer.config`."""


def optimizer_from_config(config: Mapping[str, Any]) -> Optimizer:
    """Return the optimizer whose `Optimizer.config` is `config`.

    Parameters
    ----------
    config : mapping
        ``name`` and every hyper-parameter of that optimizer; plain data, possibly from a peer or a file.

    Returns
    -------
    Optimizer
        Its learning_rate is NaN: each call of `Optimizer.update` brings its own.

    Raises
    ------
    UsageError
        If the name or a key is unknown, a key is missing, or a value has the wrong type or range.

    Examples
    --------
    >>> optimizer_from_config({"name": "Momentum", "momentum": 0.5, "use_nesterov": True})
    Momentum(learning_rate=nan, momentum=0.5, use_nesterov=True)
    """
    name = config.get("name")
    if not isinstance(name, str) or name not in OPTIMIZERS:
        near = did_you_mean(name, OPTIMIZERS) if isinstance(name, str) else ""
        raise UsageError((f"unknown optimizer {name!r}, expected one of {', '.join(OPTIMIZERS)}{near}",))
    rule = OPTIMIZERS[name]
    known = [f.name for f in fields(rule) if f.name != "learning_rate"]
    values = {key: value for key, value in config.items() if key != "name"}
    faults = [
        f"{name}: unknown hyper-parameter {key!r}{did_you_mean(str(key), known)}" for key in values.keys() - known
    ]
    faults += [f"{name}: hyper-parameter {key!r} is missing" for key in known if key not in values]
    if faults:
        raise UsageError(tuple(sorted(faults)))
    return rule(learning_rate=math.nan, **values)
