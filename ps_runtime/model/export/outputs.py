"""Outputs of an export: those of a model_fn, by the names of their signatures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError, ModelFnError, ModelFnTypeError, did_you_mean
from psflow.ps_runtime.specs.arguments import ArgumentFaults

DEFAULT_SIGNATURE = "serving_default"
"""The signature for requests that do not name one."""

Arrays = Mapping[str, NDArray[Any]]


class ExportOutput(ABC):
    """The output of one signature of an export."""

    @property
    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the output: arrays of shape (batch, ...) by name."""


@dataclass(frozen=True, slots=True)
class PredictOutput(ExportOutput):
    """Any predictions.

    Parameters
    ----------
    outputs : mapping of str to array of shape (batch, ...), or such an array
        An array without a name becomes ``output``. The parts of a tuple name are joined by ``/``.

    Raises
    ------
    ModelFnTypeError
        If a name is not a str, or a value is not an array of real numbers, booleans or texts: JSON has no complex
        numbers.
    """

    outputs: Any

    def __post_init__(self) -> None:
        faults = _faults("PredictOutput: ")
        given = self.outputs if isinstance(self.outputs, Mapping) else {"output": self.outputs}
        named = {"/".join(map(str, key)) if isinstance(key, tuple) else key: value for key, value in given.items()}
        if not named:
            faults.add("PredictOutput: outputs is empty; give at least one array")
        for name, value in named.items():
            if not isinstance(name, str):
                faults.add_type("a name of outputs", "a str", name)
            _check_array(faults, f"outputs[{name!r}]", value, "biufSU", "an array of real numbers, booleans or texts")
        faults.raise_any()
        object.__setattr__(self, "outputs", named)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the outputs."""
        return dict(self.outputs)


@dataclass(frozen=True, slots=True)
class ClassificationOutput(ExportOutput):
    """Classes and their scores, at least one of the two.

    Parameters
    ----------
    scores : array of floats of shape (batch, n), optional
        Without `classes`: of every class, in the order of class ids.
    classes : array of texts of shape (batch, n), optional
        Class names, not ids. Without `scores`: most likely first. With `scores`: the classes of the scores.

    Raises
    ------
    ModelFnError
        If neither is given; a ModelFnTypeError if one has another type.
    """

    scores: NDArray[Any] | None = None
    classes: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        faults = _faults("ClassificationOutput: ")
        if self.scores is None and self.classes is None:
            faults.add("ClassificationOutput: give scores, classes or both")
        if self.scores is not None:
            _check_array(faults, "scores", self.scores, "f", "an array of floats")
        if self.classes is not None:
            _check_array(faults, "classes", self.classes, "U", "an array of texts, not of class ids")
        faults.raise_any()

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return ``scores`` and ``classes``, if given."""
        given = {"scores": self.scores, "classes": self.classes}
        return {name: array for name, array in given.items() if array is not None}


@dataclass(frozen=True, slots=True)
class RegressionOutput(ExportOutput):
    """Numbers.

    Parameters
    ----------
    value : array of floats of shape (batch, ...)
        The predicted values; the response names them ``outputs``.

    Raises
    ------
    ModelFnTypeError
        If it is not an array of floats.
    """

    value: NDArray[Any]

    def __post_init__(self) -> None:
        faults = _faults("RegressionOutput: ")
        _check_array(faults, "value", self.value, "f", "an array of floats")
        faults.raise_any()

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the value, as ``outputs``."""
        return {"outputs": self.value}


def checked_outputs(given: Any, faults: ArgumentFaults) -> dict[str, ExportOutput] | None:
    """Return the ``export_outputs`` of an EstimatorSpec with their default signature; None if there are none.

    Faults are added to `faults`. A single output is also the default one, whatever its name.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping):
        faults.add_type("export_outputs", "a mapping of names of signatures to ExportOutputs, or None", given)
        return None
    for name, output in given.items():
        if not isinstance(name, str):
            faults.add_type("a name of export_outputs", "a str", name)
        if not isinstance(output, ExportOutput):
            expected = "a PredictOutput, a ClassificationOutput or a RegressionOutput"
            faults.add_type(f"export_outputs[{name!r}]", expected, output)
    outputs = dict(given)
    if len(outputs) == 1:
        return {DEFAULT_SIGNATURE: next(iter(outputs.values())), **outputs}
    if DEFAULT_SIGNATURE not in outputs:
        names = ", ".join(map(repr, outputs)) or "nothing"
        faults.add(f"export_outputs has {names}: expected {DEFAULT_SIGNATURE!r} among them, the default signature")
    return outputs


def outputs_of(export_outputs: Mapping[str, ExportOutput] | None, predictions: Any, features: Any) -> dict[str, Arrays]:
    """Return the arrays of each signature of an EstimatorSpec for ``infer``; without outputs, those of its predictions.

    Raises ModelFnError if an array of export_outputs does not have one row for each row of the features.
    """
    if export_outputs is not None:
        rows = len(next(iter(features.values())) if isinstance(features, Mapping) else features)
        outputs: dict[str, Arrays] = {name: output.arrays for name, output in export_outputs.items()}
        faults = _faults("export_outputs")
        for name, arrays in outputs.items():
            for key, array in arrays.items():
                if array.shape[:1] != (rows,):
                    got = f"{key!r} of shape {list(array.shape)} for {rows} rows"
                    faults.add(f"[{name!r}] has {got}: expected one row for each")
        faults.raise_any()
        return outputs
    named = predictions if isinstance(predictions, Mapping) else {"predictions": predictions}
    return {DEFAULT_SIGNATURE: {name: np.asarray(value) for name, value in named.items()}}


def served_outputs(outputs: Mapping[str, Arrays], signature: str) -> Arrays:
    """Return the arrays of the requested signature.

    Raises InputError if the signature does not exist.
    """
    if signature not in outputs:
        names = ", ".join(map(repr, outputs))
        hint = did_you_mean(signature, outputs)
        raise InputError((f"signature_name is {signature!r}: expected one of {names}{hint}",))
    return outputs[signature]


def _faults(where: str) -> ArgumentFaults:
    return ArgumentFaults(where, ModelFnError, ModelFnTypeError)


def _check_array(faults: ArgumentFaults, name: str, given: Any, kinds: str, expected: str) -> None:
    if not isinstance(given, np.ndarray) or given.dtype.kind not in kinds:
        faults.add_type(name, expected, given)
