"""A call of model_fn on a row of zeros: what it predicts, where no row of an input has been read."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from psflow.ps_runtime.data.arrays import zeros_of
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.estimator.predictions import check_keys
from psflow.ps_runtime.model.caller import ModelCaller
from psflow.ps_runtime.model.mode_reads import ModeReads
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["check_keys_early", "schema_to_predict"]

logger = logging.getLogger(__name__)


def schema_to_predict(caller: ModelCaller, schema: InputSchema) -> InputSchema | None:
    """Return what a model that was trained on `schema` will read to predict; None if that shows later."""
    try:
        return ModeReads(caller.reading(schema), (ModeKeys.PREDICT,))(
            zeros_of(schema.whole.features), None, schema.for_prediction(), "the predict input"
        )
    except InputError as error:  # of a feature that the training input does not have
        logger.debug("the input of the prediction is not looked at: %s", error)
        return None


def check_keys_early(caller: ModelCaller, schema: InputSchema, keys: Sequence[str]) -> None:
    """Refuse unknown keys of predictions before a cluster predicts, if model_fn takes a row of zeros.

    Raises
    ------
    UsageError
        If a key is unknown, or the predictions have no names.
    """
    if not keys:
        return
    try:
        with np.errstate(all="ignore"):
            zeros = zeros_of(schema.whole.features)
            predictions = caller.reading(schema).build(zeros, None, ModeKeys.PREDICT, seed=0).spec.predictions
    except Exception as error:  # zeros may be nothing that a model takes; then workers judge the keys
        logger.debug("predict_keys are judged by workers, as model_fn takes no row of zeros: %r", error)
        return
    check_keys(predictions, keys)
