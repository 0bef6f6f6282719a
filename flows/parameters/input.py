"""Where examples come from: a data set, or an input_fn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from psflow.flows.parameters.base import FUNCTION, Alternatives, Parameters, value_of
from psflow.ps_runtime.data.formats import FORMATS

__all__ = ["DataInput", "FunctionInput", "InputParameters", "SourceParameters"]


class DataInput(Parameters):
    """A data set that is split over the workers."""

    format: Literal["csv", "tsv", "npz", "idx", "digits"] = Field(description="Format of the data; digits is built in.")
    path: str | None = Field(None, description="File or fsspec URL; null for a data set that is built in.")
    labels_path: str | None = Field(None, description="File or fsspec URL of the labels of idx images.")
    split: str | None = Field(None, description="Part of the data set: train, test or all; null: train.")
    label: str | None = Field(None, description="Column or array that holds the label.")
    features: Annotated[tuple[str, ...], Field(strict=False)] | None = Field(
        None, description="Columns or arrays that are features; null: all but the label."
    )
    batch_size: int = Field(32, ge=1, description="Examples per batch.")
    shuffle: bool = Field(False, description="Whether to shuffle the examples anew in each epoch.")
    epochs: int | None = Field(
        None, ge=1, description="Passes over the data; null: endless in training, one in evaluation."
    )
    seed: int | None = Field(None, ge=0, description="Seed of the shuffling; null: the seed of the run.")

    @model_validator(mode="after")
    def _keys_fit_format(self) -> Self:
        known = FORMATS[self.format].keys
        strange = [key for key in ("path", "labels_path", "split", "label", "features") if key not in known]
        faults = [f"format {self.format!r} has no {key}" for key in strange if getattr(self, key) is not None]
        if "path" in known and self.path is None:
            faults.append(f"format {self.format!r} needs a path")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def spec(self, *, training: bool, seed: int) -> dict[str, Any]:
        """Return what `psflow.ps_runtime.data.formats.open_dataset` takes.

        Parameters
        ----------
        training : bool
            Whether the data is repeated without end if `epochs` does not say.
        seed : int
            Seed of the order if there is none here.
        """
        epochs = self.epochs if training else self.epochs or 1
        return {"seed": seed, **self.model_dump(exclude_none=True), "epochs": epochs}


class FunctionInput(Parameters):
    """An input_fn of the user."""

    name: str = Field(pattern=FUNCTION, description="The input_fn, as package.module:function.")
    params: dict[str, Any] = Field(default_factory=dict, description="Hyper-parameters, passed to it as params.")


def _kind(value: Any) -> str | None:
    if not isinstance(value, Mapping | BaseModel):
        return None
    return "DataInput" if value_of(value, "name") is None else "FunctionInput"


SourceParameters = Annotated[
    Annotated[DataInput, Tag("DataInput")] | Annotated[FunctionInput, Tag("FunctionInput")],
    Discriminator(_kind),
    Alternatives(),
]


class InputParameters(Parameters):
    """Where examples come from."""

    train: SourceParameters = Field(description="Training data.")
    eval: SourceParameters = Field(description="Evaluation data: one pass, in the order of the data.")
