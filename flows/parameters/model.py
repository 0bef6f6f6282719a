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
from psflow.ps_runtime.model.canned.base import Head
from psflow.ps_runtime.model.canned.class_heads import BinaryClassHead, MultiClassHead
from psflow.ps_runtime.model.canned.multi_label_head import MultiLabelHead
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.optimizers import (
    NAMES_ELSEWHERE,
    OPTIMIZERS,
    SCHEDULES,
    ChainedSchedules,
    LinearWarmup,
    Optimizer,
    ReduceOnPlateau,
    Schedule,
)
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
        return built_by_user("optimizer", self.name, Optimizer, self.model_extra or {}, _nested(SCHEDULE_MODELS))


class OwnSchedule(KindParameters, NamesCode):
    """A schedule of the user; other keys are its parameters."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=FUNCTION, description="The schedule, as package.module:Class.")

    def build(self) -> Any:
        """Return the schedule; ConfigError or UsageError as `built_by_user` raises."""
        return built_by_user("learning_rate", self.name, Schedule, self.model_extra or {}, _nested(SCHEDULE_MODELS))


def _nested(schedules: Mapping[str, type[CheckedParameters]]) -> dict[type, Nested]:
    """Return the configuration of a schedule, one of `schedules` or the user's, within other objects."""
    return {Schedule: Nested(Choice("schedule", schedules, own=OwnSchedule).annotation, lambda schedule: schedule)}


def _schedules(nested: Mapping[type, Nested], *, are_outermost: bool) -> dict[str, type[CheckedParameters]]:
    """Return the keys of the schedules that others may hold, or of those that no other may."""
    return {
        name: parameters_of(schedule, f"{name}Parameters", CheckedParameters, {"name": name}, nested)
        for name, schedule in SCHEDULES.items()
        if (schedule in (LinearWarmup, ChainedSchedules, ReduceOnPlateau)) is are_outermost
    }


_SIMPLE = _schedules({}, are_outermost=False)
SCHEDULE_MODELS = _SIMPLE | _schedules(_nested(_SIMPLE), are_outermost=True)

OPTIMIZER_MODELS: dict[str, type[CheckedParameters]] = {
    name: parameters_of(rule, f"{name}Parameters", CheckedParameters, {"name": name}, _nested(SCHEDULE_MODELS))
    for name, rule in OPTIMIZERS.items()
}

if TYPE_CHECKING:
    OptimizerParameters = KindParameters
else:
    OptimizerParameters = Choice(
        "optimizer", OPTIMIZER_MODELS, own=OwnOptimizer, is_named_alone=True, names_elsewhere=NAMES_ELSEWHERE
    ).annotation


def _parameters(rule: Optimizer) -> Any:
    name = type(rule).__name__
    if OPTIMIZERS.get(name) is not type(rule):
        return rule
    return OPTIMIZER_MODELS[name].model_validate(
        {"name": name} | {key: getattr(rule, key) for key in keys_of(type(rule))}
    )


NESTED: dict[type, Nested] = {Optimizer: Nested(OptimizerParameters, _parameters)}
"""Configuration of an optimizer."""


HEADS: Mapping[str, type[Head]] = MappingProxyType(
    {head.__name__: head for head in (BinaryClassHead, MultiClassHead, MultiLabelHead, RegressionHead)}
)
"""The heads of torch modules that a configuration can name."""


class OneHead(CheckedParameters):
    """Keys of a head. Its class is their ``name``, so it has no name of its own, which only several heads need."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {key: value for key, value in super().arguments().items() if key != "name"}


if TYPE_CHECKING:
    HeadParameters = OneHead
else:
    HeadParameters = Choice(
        "head", {name: parameters_of(kind, name, OneHead, {"name": name}, {}) for name, kind in HEADS.items()}
    ).annotation


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
    """A model_fn of the user, a subclass of Estimator, or a torch module."""

    name: str = Field(pattern=FUNCTION, description="The model_fn, Estimator or torch module, as package.module:name.")
    params: dict[str, Any] = Field(
        default_factory=dict,
        description="Hyper-parameters: passed to model_fn as params, to an Estimator or a torch module by name.",
    )
    head: HeadParameters | None = Field(
        None, description="Interprets the outputs of a torch module: loss, predictions, metrics."
    )
    loss: str | None = Field(
        None,
        pattern=FUNCTION,
        description="Loss of a torch module in place of a head, a function of outputs and labels as "
        "package.module:function.",
    )
    optimizer: OptimizerParameters | None = Field(
        None, description="Optimizer of a torch module; null: Adam with learning rate 0.001."
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
