"""The keys of the prediction flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from psflow.flows.parameters.base import FlowParameters, Strings
from psflow.flows.parameters.cluster import PredictClusterParameters
from psflow.flows.parameters.input import PREDICT_INVALID, PREDICT_NON_FINITE, FormatName, PredictNonFinite
from psflow.flows.parameters.parsing import parse_as
from psflow.ps_runtime.config.files import Origin
from psflow.tasks.prediction.options import OnError, OutputFormat, PredictInvalid

ON_ERROR = (
    "What becomes of a row that cannot be read or predicted; stop: the prediction stops there, and the same command "
    "goes on later; reject: it goes to _rejects in the output, with the reason, and all other rows are predicted."
)
NEW_FILES_ONLY = (
    "Predict only the record files that no earlier run into this output has predicted, into batch-00000, batch-00001, "
    "... below it. A file that was predicted and has changed since is refused."
)
OUTPUT_FORMAT = "Format of the parts; parquet or csv. In csv a prediction of several numbers has a column for each."
ESCAPE_FORMULAS = (
    "Whether texts in csv that begin with =, +, -, @, a tab or a line end have an apostrophe before them, so that no "
    "spreadsheet takes them for a formula; numbers stay as they are."
)
PREDICT_KEYS = "Predictions to write, such as [class_ids]; null: all but all_class_ids and all_classes."

__all__ = ["PredictChoice", "PredictParameters", "parse_predict_parameters"]


class PredictChoice(FlowParameters):
    """How an input is predicted, by hand or at the end of a pipeline."""

    format: FormatName | None = Field(
        None, description="Its format, as input.train.format names one; null: that of its suffix."
    )
    non_finite: PredictNonFinite = Field("keep", description=PREDICT_NON_FINITE)
    invalid: PredictInvalid = Field("error", description=PREDICT_INVALID)
    on_error: OnError = Field("stop", description=ON_ERROR)
    new_files_only: bool = Field(False, description=NEW_FILES_ONLY)
    output_format: OutputFormat = Field("parquet", description=OUTPUT_FORMAT)
    escape_formulas: bool = Field(False, description=ESCAPE_FORMULAS)
    predict_keys: Strings | None = Field(None, min_length=1, description=PREDICT_KEYS)


class PredictParameters(PredictChoice):
    """The parameters of a prediction flow."""

    model: str = Field(min_length=1, description="URI of an MLflow model, such as models:/psflow-digits@best.")
    input: str = Field(
        min_length=1,
        description="File to score, or folder or glob of record files, or its fsspec URL; or digits:test, the test "
        "images of the digits.",
    )
    output: str = Field(min_length=1, description="Directory or fsspec URL for the predictions.")
    code_dir: str | None = Field(
        None,
        min_length=1,
        description="Directory to search first for the module that format names; null: only the working directory, "
        "PYTHONPATH and the installed packages.",
    )
    cluster: PredictClusterParameters = Field(PredictClusterParameters(), description="Cluster to predict on.")


def parse_predict_parameters(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> PredictParameters:
    """Check settings, and return them as parameters of the prediction flow; see `parse_as`."""
    return parse_as(PredictParameters, values, origins)
