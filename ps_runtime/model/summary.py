"""Summaries, as ``summary.scalar("accuracy", value)`` inside a model_fn.

The chief reports them every `RunConfig.save_summary_steps`. Scalars become metrics of the MLflow run. A histogram, an
image or a text becomes a file among its artifacts, ``summaries/<name>``, which the next report overwrites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.model.calls.scope import current_scope
from psflow.ps_runtime.model.calls.scope import scalar_summary as scalar
from psflow.ps_runtime.model.summary_files import MAX_BYTES, NAME, FileSummary, Histogram, Image, Text, as_pixels
from psflow.ps_runtime.numeric import plain

__all__ = ["FileWriter", "histogram", "image", "scalar", "text"]

MAX_BUCKETS = 1000


class Recording(Protocol):
    """A training session that records."""

    def record(self, global_step: int, values: Mapping[str, float]) -> None:
        """Record metrics of this replica."""


class FileWriter:
    """Records the scalar summaries that a training loop fetches, as metrics of its replica.

    They go where all metrics of the training go. `SummarySaverHook` records those of the chief without it.

    Parameters
    ----------
    session : MonitoredTrainingSession
        The session of the loop.

    Examples
    --------
    ::

        writer = psflow.summary.FileWriter(session)
        summary, step = session.run(["summaries", "global_step"])
        writer.add_summary(summary, step)
    """

    def __init__(self, session: Recording) -> None:
        self._session = session

    def add_summary(self, summary: Mapping[str, Any], global_step: int) -> None:
        """Record the scalars of ``summaries``, by name, as of `global_step`.

        Raises ArgumentTypeError if `summary` is not a mapping of str to number.
        """
        self._session.record(global_step, summary)


def histogram(name: str, values: Any, buckets: int = 30) -> None:
    """Record the distribution of the numbers of an array. They are copied in each step.

    Parameters
    ----------
    name : str
        Name of the file, without ``.json``; slashes make folders.
    values : array of numbers
        Any shape.
    buckets : int
        Number of intervals of equal width, 1 to 1000.

    Raises
    ------
    ModelFnError
        Outside a model_fn; if an argument is invalid.
    """
    array = np.array(plain(values))
    faults = []
    if array.dtype.kind not in "fiub":
        faults.append(f"takes numbers, got an array of {array.dtype}")
    if not isinstance(buckets, int) or not 1 <= buckets <= MAX_BUCKETS:
        faults.append(f"takes buckets from 1 to {MAX_BUCKETS}, got {buckets!r}")
    _record("histogram", name, faults, lambda: {name: Histogram(array, buckets)})


def image(name: str, tensor: Any, max_outputs: int = 3) -> None:
    """Record the first images of a batch. They are copied in each step.

    Parameters
    ----------
    name : str
        Names of the files, ``<name>-0.png``, ``<name>-1.png``, ...; slashes make folders.
    tensor : (batch, height, width, channels) array
        1 channel is grey, 3 are RGB, 4 are RGBA; height * (width * channels + 1) of at most 48,000. uint8 is shown
        unchanged; other numbers are scaled, for each image, such that the largest is 255, and 0 is mid-grey if some are
        below 0.
    max_outputs : int
        Maximum number of images of a batch, at least 1.

    Raises
    ------
    ModelFnError
        Outside a model_fn; if an argument is invalid.
    """
    array = np.asarray(plain(tensor))
    faults = []
    if array.dtype.kind not in "fiub" or array.ndim != 4 or array.shape[3] not in (1, 3, 4) or not array.size:
        faults.append(
            "takes numbers of shape (batch, height, width, channels), with 1, 3 or 4 channels, got "
            f"{array.dtype}{list(array.shape)}"
        )
    elif (size := array[0].size + array.shape[1]) > MAX_BYTES:
        faults.append(
            f"takes images of at most {MAX_BYTES} numbers, and 1 for each row, got {size}: "
            "show a part, or make it smaller"
        )
    if not isinstance(max_outputs, int) or max_outputs < 1:
        faults.append(f"takes max_outputs of at least 1, got {max_outputs!r}")
    _record(
        "image",
        name,
        faults,
        lambda: {f"{name}-{i}": Image(as_pixels(one)) for i, one in enumerate(array[:max_outputs])},
    )


def text(name: str, text: str | Sequence[str]) -> None:
    """Record a Markdown text.

    Parameters
    ----------
    name : str
        Name of the file, without ``.md``; slashes make folders.
    text : str or sequence of str
        A text, or its lines, of at most 48,000 bytes.

    Raises
    ------
    ModelFnError
        Outside a model_fn; if an argument is invalid.
    """
    lines = [text] if isinstance(text, str) else list(text)
    faults = []
    if not all(isinstance(line, str) for line in lines):
        faults.append(f"takes a text or its lines, got {text!r:.80}")
    elif (size := len("\n".join(lines).encode())) > MAX_BYTES:
        faults.append(f"takes a text of at most {MAX_BYTES} bytes, got {size}")
    _record("text", name, faults, lambda: {name: Text("\n".join(lines))})


def _record(kind: str, name: str, faults: list[str], make: Any) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > 200:
        faults.append("takes a name of letters, digits and _ . + - with slashes between, of at most 200 characters")
    if faults:
        raise ModelFnError(tuple(f"summary.{kind}({name!r}) {fault}" for fault in faults))
    files: dict[str, FileSummary] = current_scope(f"summary.{kind}").file_summaries
    files |= make()
