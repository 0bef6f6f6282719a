"""Calls a serving_input_receiver_fn for a served model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from psflow.ps_runtime.columns.frames import table_of
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.errors import InputError, PsflowError
from psflow.ps_runtime.model.export.receiver import FEATURE, Receiver, ReceiverCall, ServingInputReceiverFn
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema
from psflow.ps_runtime.specs.schema_enforcement import (
    enforce_arrays,
    enforce_features,
    missing_faults,
    scale_features,
    stacked,
)


def served_features(given: Any, schema: InputSchema, where: str) -> Any:
    """Return the features of a model, given stored values.

    Raises InputError with all faults that distinguish the values from the training input.
    """
    if schema.preprocessing is not None:
        return _preprocessed(given, schema.preprocessing, schema, where)
    is_frame = hasattr(given, "columns") and not isinstance(given, Mapping)
    if is_frame and schema.is_table:
        columns = list(schema.columns)
        if faults := missing_faults(where, "column", columns, list(given.columns)):
            raise InputError(tuple(faults))
        given = given[columns].to_numpy()
    elif is_frame:
        texts = {spec.name for spec in schema.features if spec.is_text}  # a number among them is not a text
        given = {name: given[name] if name in texts else stacked(given[name]) for name in given.columns}
    return scale_features(enforce_features(given, schema, where), schema, where)


def _preprocessed(given: Any, preprocessing: Preprocessing, schema: InputSchema, where: str) -> Any:
    """Return the features for raw columns: a pyarrow table, a DataFrame, or a mapping of arrays."""
    if not hasattr(given, "column_names"):
        if not hasattr(given, "keys"):
            names = ", ".join(repr(column.name) for column in preprocessing.raw_columns[:10])
            raise InputError((f"{where} is a {type(given).__name__}: expected columns with the names {names}",))
        given = table_of(given, preprocessing.raw_columns, schema.na_values)
    return preprocessing.apply(given)


@dataclass(frozen=True, slots=True)
class ServingInput:
    """A serving_input_receiver_fn, and the arrays that it receives; made by `of`."""

    function: ServingInputReceiverFn
    received: tuple[ArraySpec, ...]
    example: Any

    @classmethod
    def of(cls, function: ServingInputReceiverFn) -> ServingInput:
        """Call a serving_input_receiver_fn on its examples.

        Raises UsageError if clients cannot send a requested array, or one of their arrays is not a placeholder; an
        ArgumentTypeError if the result is not a receiver. Its own errors pass through.

        Examples
        --------
        >>> import numpy as np
        >>> from psflow.ps_runtime.model.export.receiver import ServingInputReceiver, placeholder
        >>> def lines():
        ...     line = placeholder(str, [None], example="0.5;red")
        ...     x = np.array([text.split(";")[0] for text in line], np.float32)
        ...     return ServingInputReceiver({"x": x}, {"line": line})
        >>> [(spec.name, spec.dtype, spec.shape) for spec in ServingInput.of(lines).received]
        [('line', 'str', ())]
        """
        call = ReceiverCall()
        receiver = _called(function, call)
        faults = ArgumentFaults("receiver_tensors: ")
        names: dict[int, str] = {}
        for name, array in receiver.receiver_tensors.items():
            place = next((place for place, given in enumerate(call.arrays) if given is array), None)
            if place is None:
                faults.add(f"receiver_tensors[{name!r}] is not an array from placeholder; pass what it returned")
            elif names.setdefault(place, name) != name:
                faults.add(f"receiver_tensors has {call.asked[place].name} twice, as {names[place]!r} and {name!r}")
        for place, spec in enumerate(call.asked):
            if place not in names:
                faults.add(f"{spec.name} is not among the receiver_tensors, so no client can send it; add it to them")
        faults.raise_any()
        received = tuple(replace(spec, name=names[place]) for place, spec in enumerate(call.asked))
        return cls(function, received, receiver.features)

    def features(self, given: Any, where: str) -> Any:
        """Return the features that the function computes from a request.

        Raises InputError if the request has other arrays than the function receives, or the features do not have one
        row for each row.
        """
        arrays = enforce_arrays(given, self.received, where)
        lengths = {spec.name: len(array) for spec, array in zip(self.received, arrays, strict=True)}
        if len(set(lengths.values())) > 1:
            raise InputError((f"{where} has arrays of different numbers of rows: {lengths}; send one row for each",))
        call = ReceiverCall([array.copy() for array in arrays])  # the function may change its arrays
        try:
            features = _called(self.function, call).features
        except PsflowError:
            raise
        except Exception as error:  # a client may send anything
            reason = f"{type(error).__name__}: {error}"
            raise InputError((f"{where} cannot be read by {_name(self.function)}: {reason}",)) from error
        if [replace(spec, name="") for spec in call.asked] != [replace(spec, name="") for spec in self.received]:
            raise InputError((f"{_name(self.function)} requests other placeholders than in its first call",))
        num_rows = next(iter(lengths.values()))
        made = features if isinstance(features, Mapping) else {FEATURE: features}
        for name, array in made.items():
            if array.shape[:1] != (num_rows,):
                got = f"{name!r} of shape {list(array.shape)} for {num_rows} rows"
                raise InputError((f"{_name(self.function)} returned the feature {got}: expected one row for each",))
        return features


def _called(function: ServingInputReceiverFn, call: ReceiverCall) -> Receiver:
    with call:
        receiver = function()
    if not isinstance(receiver, Receiver):
        faults = ArgumentFaults()
        faults.add_type(f"the result of {_name(function)}", "a ServingInputReceiver", receiver)
        faults.raise_any()
    return receiver


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
