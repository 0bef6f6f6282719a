"""A call of model_fn on a row of zeros: what it predicts, where no row of an input has been read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from psflow.ps_runtime.estimator.predictions import check_keys
from psflow.ps_runtime.model.caller import ModelCaller
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["check_keys_early", "zeros_of"]

logger = logging.getLogger(__name__)


def zeros_of(schema: InputSchema) -> Any:
    """Return one row of features, for the names, dtypes and shapes of what the model predicts."""
    arrays = {spec.name: np.zeros((1, *spec.shape), spec.dtype) for spec in schema.features}
    return arrays if schema.names else arrays[""]


def check_keys_early(caller: ModelCaller, schema: InputSchema, keys: Sequence[str]) -> None:
    """Refuse unknown keys of predictions before a cluster predicts, if model_fn takes a row of zeros.

    Parameters
    ----------
    caller : ModelCaller
        Of the model. It is called on first values; no checkpoint is read.
    schema : InputSchema
        What the model reads.
    keys : sequence of str
        The predictions that are asked for; without one nothing is called.

    Raises
    ------
    UsageError
        If a key is unknown, or the predictions have no names.
    """
    if not keys:
        return
    try:
        with np.errstate(all="ignore"):
            predictions = (
                caller.reading(schema).build(zeros_of(schema), None, ModeKeys.PREDICT, seed=0).spec.predictions
            )
    except Exception as error:  # zeros may be nothing that a model takes; then workers judge the keys
        logger.debug("predict_keys are judged by workers, as model_fn takes no row of zeros: %r", error)
        return
    check_keys(predictions, keys)
