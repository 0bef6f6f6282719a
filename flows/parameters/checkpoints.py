"""Which checkpoints a flow works on: named by a model_dir, an MLflow run, or a configuration."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from psflow.flows.parameters.base import FlowParameters, Strings
from psflow.ps_runtime.checkpoint.selection import Selection
from psflow.ps_runtime.errors import UsageError

__all__ = ["CheckpointSource", "Checkpoints", "OneCheckpoint"]


def _read_by(parse: Callable[[str], Selection]) -> AfterValidator:
    """Refuse a text that `parse` does not read."""

    def checked(text: str) -> str:
        try:
            parse(text)
        except UsageError as error:
            raise ValueError("; ".join(error.faults)) from None
        return text

    return AfterValidator(checked)


Checkpoints = Annotated[str, _read_by(Selection.parse)]
"""Which checkpoints are meant, of those that there are."""
OneCheckpoint = Annotated[str, _read_by(Selection.parse_one)]
"""Which single one is meant."""


class CheckpointSource(FlowParameters):
    """Which training the checkpoints are of."""

    model_dir: str | None = Field(None, min_length=1, description="model_dir of the training; or give run_id.")
    run_id: str | None = Field(
        None, min_length=1, description="Id of the MLflow run of the training, which records its model_dir."
    )
    conf: Strings = Field(
        (), description="Configuration files to use in place of config.yaml in model_dir; later ones win."
    )
    overrides: Strings = Field((), description="Overrides of that configuration, such as input.eval.split=train.")

    @property
    def title(self) -> str:
        """What people call it: the last part of what names it."""
        of = self.model_dir or self.run_id or self.conf[0]
        return os.path.basename(of.rstrip("/")).removesuffix(".yaml")

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.model_dir is not None and self.run_id is not None:
            raise ValueError("expected model_dir or run_id, got both")
        if self.model_dir is None and self.run_id is None and not self.conf:
            raise ValueError("expected model_dir, run_id or a configuration file, got none")
        return self
