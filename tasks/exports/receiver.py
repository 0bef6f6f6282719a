"""A serving_input_receiver_fn, tried out before a model is served with it."""

from __future__ import annotations

from psflow.ps_runtime.data.user_code import user_code
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.served_features import served_features
from psflow.ps_runtime.model.serving_input import ServingInput
from psflow.ps_runtime.model.serving_receiver import ServingInputReceiverFn
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["tried_receiver"]


def tried_receiver(function: ServingInputReceiverFn, schema: InputSchema | None) -> ServingInput:
    """Call a serving_input_receiver_fn on its examples; return it with what it receives.

    Raises
    ------
    UsageError
        If the function fails, or makes other features than the model reads.
    """
    with user_code(function, UsageError, "on its examples"):
        receiver = ServingInput.of(function)
    if schema is not None:
        served_features(receiver.example, schema, "what serving_input_receiver_fn makes of its examples")
    return receiver
