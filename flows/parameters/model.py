"""Configuration keys of model, optimizer and consistency."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, create_model

from psflow.flows.parameters.base import FUNCTION, FlowParameters, NamesCode
from psflow.flows.parameters.kinds import CheckedParameters, Choice, KindParameters, Nested, keys_of, parameters_of
from psflow.flows.parameters.user_modules import built_by_user
from psflow.ps_runtime.estimator.canned.baseline import BaselineClassifier, BaselineRegressor
from psflow.ps_runtime.estimator.canned.dnn import DNNClassifier, DNNRegressor
from psflow.ps_runtime.estimator.canned.dnn_linear_combined import (
    DNNLinearCombinedClassifier,
    DNNLinearCombinedRegressor,
)
from psflow.ps_runtime.estimator.canned.linear import LinearClassifier, LinearRegressor
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.optimizers import OPTIMIZERS, Optimizer
from psflow.ps_runtime.specs.consistency import CONSISTENCIES

KINDS: dict[str, type[CheckedParameters]] = {
    name: parameters_of(kind, f"{kind.__name__}Parameters", CheckedParameters, {"name": name}, {})
    for name, kind in CONSISTENCIES.items()
}

if TYPE_CHECKING:
    ConsistencyParameters = CheckedParameters
else:
    ConsistencyParameters = Choice("consistency", KINDS, is_named_alone=True).annotation


class OwnOptimizer(KindParameters, NamesCode):
    """An optimizer of the user; other keys are its hyper-parameters."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=FUNCTION, description="The optimizer, as package.module:Class.")

    def build(self) -> Any:
        """Return the optimizer; ConfigError or UsageError as `built_by_user` raises."""
        return built_by_user(self.name, Optimizer, self.model_extra or {})


OPTIMIZER_MODELS: dict[str, type[CheckedParameters]] = {
    name: parameters_of(rule, f"{name}Parameters", CheckedParameters, {"name": name}, {})
    for name, rule in OPTIMIZERS.items()
}

if TYPE_CHECKING:
    OptimizerParameters = KindParameters
else:
    OptimizerParameters = Choice("optimizer", OPTIMIZER_MODELS, own=OwnOptimizer).annotation


def _parameters(rule: Optimizer) -> Any:
    name = type(rule).__name__
    if OPTIMIZERS.get(name) is not type(rule):
        return rule
    return OPTIMIZER_MODELS[name].model_validate(
        {"name": name} | {key: getattr(rule, key) for key in keys_of(type(rule))}
    )


NESTED: dict[type, Nested] = {Optimizer: Nested(OptimizerParameters, _parameters)}
"""Configuration of an optimizer."""


CANNED: Mapping[str, type[Estimator]] = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            BaselineClassifier,
            BaselineRegressor,
            DNNClassifier,
            DNNLinearCombinedClassifier,
            DNNLinearCombinedRegressor,
            DNNRegressor,
            LinearClassifier,
            LinearRegressor,
        )
    }
)
"""Each accepts its hyper-parameters, ``model_dir`` and ``config`` by name."""


class CannedModel(FlowParameters):
    """A model that psflow ships."""

    name: str
    params: KindParameters


class FunctionModel(FlowParameters, NamesCode):
    """A model_fn of the user, or a subclass of Estimator."""

    name: str = Field(pattern=FUNCTION, description="The model_fn or Estimator, as package.module:name.")
    params: dict[str, Any] = Field(
        default_factory=dict, description="Hyper-parameters: passed to model_fn as params, to an Estimator by name."
    )


def _canned(kind: type[Estimator]) -> type[CannedModel]:
    name = kind.__name__
    params = parameters_of(kind, f"{name}Parameters", KindParameters, {}, NESTED)
    has_defaults = not any(field.is_required() for field in params.model_fields.values())
    default: Any = params() if has_defaults else ...
    fields: dict[str, Any] = {
        "name": (Literal[name], Field(description="Name of the canned model.")),
        "params": (params, Field(default, description="Its hyper-parameters.")),
    }
    return create_model(name, __base__=CannedModel, __doc__=params.__doc__, **fields)


MODELS: dict[str, type[CannedModel]] = {name: _canned(kind) for name, kind in CANNED.items()}

if TYPE_CHECKING:
    ModelParameters = CannedModel | FunctionModel
else:
    ModelParameters = Choice("model", MODELS, own=FunctionModel).annotation
