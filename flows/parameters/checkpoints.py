"""Which checkpoints a flow works on: named by a model_dir, an MLflow run, or a configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from psflow.flows.parameters.base import FlowParameters, Strings
from psflow.ps_runtime.checkpoint.selection import Selection
from psflow.ps_runtime.config.files import Origin, Settings, is_override, load
from psflow.ps_runtime.errors import UsageError

__all__ = ["CheckpointSource", "Checkpoints", "OneCheckpoint", "source_settings"]


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


def source_settings(arguments: Sequence[str], options: Mapping[str, Any]) -> Settings:
    """Return the settings of a command that works on checkpoints.

    Parameters
    ----------
    arguments : sequence of str
        Configuration files, and ``key=value``: of the command itself if the key begins with ``cluster.``, else of the
        configuration.
    options : mapping of str to object
        By parameter; None where an option was not given.

    Raises
    ------
    ConfigError
        If an override is malformed.
    """
    overrides = [text for text in arguments if is_override(text)]
    load([], overrides)  # reports every fault before anything is looked for
    of_the_cluster = [text for text in overrides if text.startswith("cluster.")]
    values = {key: value for key, value in options.items() if value is not None} | {
        "conf": [text for text in arguments if not is_override(text)],
        "overrides": [text for text in overrides if text not in of_the_cluster],
    }
    origins = {key: Origin(f"--{key.replace('_', '-')}") for key in options if key in values}
    return load([], of_the_cluster).merged(Settings(values, origins))
