"""Options of a prediction other than model and input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from psflow.ps_runtime.errors import UsageError

OutputFormat = Literal["parquet", "csv"]
OnError = Literal["stop", "reject"]
"""Policy for a row that cannot be read or predicted: stop the prediction, or reject the row."""
PredictInvalid = Literal["error", "missing"]
"""Policy for a cell that is not of the type of its column: fault of its row, or missing value."""


@dataclass(frozen=True, slots=True)
class PredictionOptions:
    """Format and policies of predictions.

    Raises UsageError if `escape_formulas` is set for a format other than csv.
    """

    output_format: OutputFormat = "parquet"
    predict_keys: tuple[str, ...] | None = None
    on_error: OnError = "stop"
    escape_formulas: bool = False

    def __post_init__(self) -> None:
        if self.escape_formulas and self.output_format != "csv":
            got = f"escape_formulas is true, but output_format is {self.output_format}"
            why = "expected csv, the only format in which spreadsheets evaluate formulas"
            raise UsageError((f"{got}: {why}; set output_format: csv, or leave it out",))
