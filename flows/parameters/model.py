"""What is trained: a canned model with its hyper-parameters, or a model_fn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from psflow.flows.parameters.base import FUNCTION, Alternatives, Parameters, value_of
from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.optimizers import OPTIMIZERS, Optimizer

__all__ = ["CannedModel", "DNNClassifierParameters", "FunctionModel", "ModelParameters", "OptimizerParameters"]


class OptimizerParameters(Parameters):
    """An optimizer by name, and its hyper-parameters."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(description=f"One of {', '.join(OPTIMIZERS)}.")
    learning_rate: float | None = Field(
        None, description="Step size; null: the optimizer's own default, where it has one."
    )

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        try:
            self.build()
        except UsageError as error:
            raise ValueError("; ".join(error.faults)) from None
        return self

    def build(self) -> Optimizer:
        """Return the optimizer.

        Raises
        ------
        UsageError
            If the name or a hyper-parameter is unknown, a hyper-parameter is missing or out of its range.
        """
        if self.name not in OPTIMIZERS:
            known = ", ".join(OPTIMIZERS)
            raise UsageError(
                (f"unknown optimizer {self.name!r}, expected one of {known}{did_you_mean(self.name, OPTIMIZERS)}",)
            )
        rule = OPTIMIZERS[self.name]
        given = self.model_dump(exclude={"name"}, exclude_none=True)
        known_fields = {f.name: f for f in fields(rule)}
        faults = [
            f"{self.name}: unknown key {key!r}{did_you_mean(key, known_fields)}"
            for key in given
            if key not in known_fields
        ]
        faults += [
            f"{self.name}: {name} is missing"
            for name, f in known_fields.items()
            if f.default is MISSING and name not in given
        ]
        if faults:
            raise UsageError(tuple(faults))
        return rule(**given)


class DNNClassifierParameters(Parameters):
    """Hyper-parameters of the canned DNNClassifier."""

    hidden_units: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = Field(
        description="Units of each hidden layer, the first layer first."
    )
    n_classes: int = Field(2, ge=2, description="Number of classes; labels are 0 to n_classes - 1.")
    optimizer: OptimizerParameters = Field(
        OptimizerParameters(name="Adagrad", learning_rate=0.05), description="How the ps applies gradients."
    )


CANNED = ("DNNClassifier",)


class CannedModel(Parameters):
    """A model that psflow ships."""

    name: Literal["DNNClassifier"] = Field(description="Name of the canned model.")
    params: DNNClassifierParameters = Field(description="Its hyper-parameters.")

    @field_validator("name", mode="before")
    @classmethod
    def _is_shipped(cls, name: Any) -> Any:
        if name not in CANNED:
            near = did_you_mean(str(name), CANNED)
            what = f"expected {' or '.join(map(repr, CANNED))}, or a function of yours as package.module:function"
            raise ValueError(f"{what}, got {name!r}{near}")
        return name


class FunctionModel(Parameters):
    """A model_fn of the user."""

    name: str = Field(pattern=FUNCTION, description="The model_fn, as package.module:function.")
    params: dict[str, Any] = Field(default_factory=dict, description="Hyper-parameters, passed to it as params.")


def _kind(value: Any) -> str | None:
    if not isinstance(value, Mapping | BaseModel):
        return None
    return "FunctionModel" if ":" in str(value_of(value, "name")) else "CannedModel"


ModelParameters = Annotated[
    Annotated[CannedModel, Tag("CannedModel")] | Annotated[FunctionModel, Tag("FunctionModel")],
    Discriminator(_kind),
    Alternatives(),
]
