"""An optimizer by name, and its hyper-parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field

from psflow.flows.parameters.base import FUNCTION, NamesCode
from psflow.flows.parameters.choices import Choice
from psflow.flows.parameters.kinds import CheckedParameters, KindParameters, Nested, keys_of, parameters_of
from psflow.flows.parameters.own import built_by_user
from psflow.ps_runtime.optimizers import OPTIMIZERS, Optimizer

__all__ = ["NESTED", "OptimizerParameters", "OwnOptimizer"]


class OwnOptimizer(KindParameters, NamesCode):
    """An optimizer of the user; further keys are its hyper-parameters."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=FUNCTION, description="The optimizer, as package.module:Class.")

    def build(self) -> Any:
        """Return the optimizer; ConfigError or UsageError as `built_by_user` raises."""
        return built_by_user(self.name, Optimizer, self.model_extra or {})


MODELS: dict[str, type[CheckedParameters]] = {
    name: parameters_of(rule, f"{name}Parameters", CheckedParameters, {"name": name}, {})
    for name, rule in OPTIMIZERS.items()
}

if TYPE_CHECKING:
    OptimizerParameters = KindParameters
else:
    OptimizerParameters = Choice("optimizer", MODELS, own=OwnOptimizer).annotation


def _parameters(rule: Optimizer) -> Any:
    name = type(rule).__name__
    if OPTIMIZERS.get(name) is not type(rule):
        return rule
    return MODELS[name].model_validate({"name": name} | {key: getattr(rule, key) for key in keys_of(type(rule))})


NESTED: dict[type, Nested] = {Optimizer: Nested(OptimizerParameters, _parameters)}
"""What stands in a configuration for an optimizer."""
