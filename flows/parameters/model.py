"""What is trained: a canned model with its hyper-parameters, or a model_fn or an Estimator of the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, create_model

from psflow.flows.parameters.base import FUNCTION, FlowParameters, NamesCode
from psflow.flows.parameters.choices import Choice
from psflow.flows.parameters.kinds import KindParameters, parameters_of
from psflow.flows.parameters.optimizer import NESTED
from psflow.ps_runtime.estimator.canned import CANNED
from psflow.ps_runtime.estimator.estimator import Estimator

__all__ = ["MODELS", "CannedModel", "FunctionModel", "ModelParameters"]


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
