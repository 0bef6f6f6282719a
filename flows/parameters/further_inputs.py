"""What a further input of a model may say of its columns: nothing that the training input says differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from psflow.flows.parameters.base import KeyFaultsError
from psflow.flows.parameters.input import MODELS, SourceParameters
from psflow.ps_runtime.data.formats import FORMATS
from psflow.ps_runtime.data.record_formats import RecordFiles

__all__ = ["check_further_inputs"]

LEARNED = ("features", "columns", "groups", "crosses", "weight")
"""Keys of record files that say what a model learns to read, which later inputs take over."""
ADVICE = "later inputs are read as the model learned to read its training input; leave it out"

RECORD_FILES = tuple(MODELS[name] for name, kind in FORMATS.items() if issubclass(kind, RecordFiles))


def check_further_inputs(train: SourceParameters, further: Mapping[str, SourceParameters]) -> None:
    """Refuse what an evaluation says of columns, unless the training input says the same.

    Its labels may stand in a column of another name.

    Raises
    ------
    KeyFaultsError
        With a sentence for each such key.
    """
    faults = {f"{where}.{key}": fault for where, source in further.items() for key, fault in _faults(train, source)}
    if faults:
        raise KeyFaultsError(faults)


def _faults(train: SourceParameters, source: SourceParameters) -> Iterator[tuple[str, str]]:
    if not isinstance(source, RECORD_FILES):
        return
    is_alike = isinstance(train, RECORD_FILES)  # the model reads columns as it has learned, else numbers as they are
    for key in (*LEARNED, "key_columns") if is_alike else LEARNED:
        value = getattr(source, key)
        learned = getattr(train, key) if is_alike else None
        default = type(source).model_fields[key].get_default(call_default_factory=True)
        if value not in (default, learned):
            yield key, f"differs from input.train.{key}: {ADVICE}"
    for key in ("classes", "normalize"):
        value = _of_label(source, key)
        if value is not None and value != _of_label(train, key):
            yield f"label.{key}", f"differs from {key} of input.train.label: {ADVICE}"


def _of_label(source: SourceParameters, key: str) -> object:
    """Return what is said of the label, None if nothing is."""
    return getattr(getattr(source, "label", None), key, None)
