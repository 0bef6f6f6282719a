"""What somebody wants of a prediction, beside its model and its input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from psflow.ps_runtime.errors import UsageError

OutputFormat = Literal["parquet", "csv"]
OnError = Literal["stop", "reject"]
"""What becomes of a row that cannot be read or predicted: the prediction stops, or goes on without it."""
PredictInvalid = Literal["error", "missing"]
"""What becomes of a cell that is not of the type of its column: its row cannot be predicted, or the cell is blank."""


@dataclass(frozen=True, slots=True)
class PredictionOptions:
    """How predictions are written.

    Raises
    ------
    UsageError
        If formulas are to be escaped in another format.
    """

    output_format: OutputFormat = "parquet"
    predict_keys: tuple[str, ...] | None = None
    on_error: OnError = "stop"
    escape_formulas: bool = False

    def __post_init__(self) -> None:
        if self.escape_formulas and self.output_format != "csv":
            got = f"escape_formulas is true, but output_format is {self.output_format}"
            why = "expected csv, which spreadsheets search for formulas"
            raise UsageError((f"{got}: {why}; set output_format: csv, or leave it out",))
