"""The folder of predictions: parts that appear whole, in the order of the input."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.errors import InputError, PsflowError, UsageError
from psflow.ps_runtime.redaction import shown_path

__all__ = ["Partition", "PredictionFolder", "partitions", "to_csv"]

JOB = "_job.json"
MIN_PARTS = 8
MAX_PART_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Partition:
    """Rows ``[start, stop)`` of the input, which become the file `name`."""

    index: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """Name of its file; names sort as the rows do."""
        return f"part-{self.index:05d}.csv"


def partitions(num_rows: int) -> list[Partition]:
    """Cut rows into parts of nearly one size, none of them empty.

    The parts depend on the number of rows alone, so that a prediction can go on with another number of workers.

    Examples
    --------
    >>> [(p.start, p.stop) for p in partitions(3)]
    [(0, 1), (1, 2), (2, 3)]
    """
    num_parts = max(min(num_rows, MIN_PARTS), math.ceil(num_rows / MAX_PART_ROWS))
    return [Partition(i, num_rows * i // num_parts, num_rows * (i + 1) // num_parts) for i in range(num_parts)]


class PredictionFolder:
    """A local folder, or any fsspec URL, that holds the parts of one prediction."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._files = FileStore(url)

    def claim(self, job: Mapping[str, Any]) -> None:
        """Make it the folder of `job`: plain data that says what is predicted with what.

        A folder of the same job may hold parts, from a prediction that was interrupted: these stay.

        Raises
        ------
        UsageError
            If it holds anything else.
        """
        self.check(job)
        if not self._names():
            self._files.put(JOB, json.dumps(job, indent=2).encode())

    def check(self, job: Mapping[str, Any]) -> None:
        """Raise as `claim` does; change nothing."""
        names = self._names()
        if JOB in names:
            what = None if self._claimed() == job else "predictions of another model or input"
        else:
            what = f"other files, such as {names[0]}" if names else None
        if what is not None:
            raise UsageError((f"the output {shown_path(self.url)} holds {what}: choose another folder, or empty it",))

    def finished(self, wanted: list[Partition]) -> list[Partition]:
        """Return which of the wanted parts are there."""
        names = set(self._names())
        return [part for part in wanted if part.name in names]

    def put(self, part: Partition, content: bytes) -> None:
        """Write a part; it appears whole, or not at all."""
        self._files.put(part.name, content)

    def verify(self, wanted: list[Partition]) -> int:
        """Count the rows of all parts, and return how many there are.

        Raises
        ------
        PsflowError
            If a part is missing, is there without being wanted, or has another number of rows than its partition.
        """
        names = [name for name in self._names() if name != JOB]
        if names != [part.name for part in wanted]:
            raise OutputError(
                shown_path(self.url), f"expected {len(wanted)} parts, found {len(names)} files: {', '.join(names[:5])}"
            )
        for part in wanted:
            if (num_rows := _count_rows(self._files.read(part.name))) != part.stop - part.start:
                raise OutputError(
                    f"{shown_path(self.url)}/{part.name}", f"{num_rows} rows, expected {part.stop - part.start}"
                )
        return sum(part.stop - part.start for part in wanted)

    def _claimed(self) -> Any:
        """Return the job whose folder it is."""
        try:
            return json.loads(self._files.read(JOB))
        except ValueError:
            raise UsageError(
                (
                    f"{shown_path(self.url)}/{JOB}, which says what was predicted, is damaged: "
                    "choose another folder as output, or empty this one",
                )
            ) from None

    def _names(self) -> list[str]:
        return self._files.names("")


@dataclass(eq=False)
class OutputError(PsflowError):
    """Predictions that were written are not what they should be."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"predictions in {self.path} are not complete: {self.reason}; empty the folder and start again"


def to_csv(predictions: Mapping[str, NDArray[Any]], keys: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    """Return predictions as CSV with a header, behind columns of pyarrow that name the rows.

    An array of shape ``(rows,)`` is a column; one of shape ``(rows, ...)`` is a column for each element of a row,
    ``<name>_0``, ``<name>_1``, ... Numbers are written so that reading them gives the same numbers.
    """
    import pyarrow as pa
    from pyarrow import csv

    columns: dict[str, Any] = {}
    for name, array in predictions.items():
        if array.ndim == 1:
            columns[name] = array
        else:
            flat = array.reshape(len(array), -1)
            columns |= {f"{name}_{index}": np.ascontiguousarray(flat[:, index]) for index in range(flat.shape[1])}
    if both := [name for name in keys if name in columns]:
        raise InputError((f"the key column {both[0]!r} has the name of a prediction: rename it",))
    buffer = io.BytesIO()
    csv.write_csv(pa.table({**keys, **columns}), buffer)
    return buffer.getvalue()


def _count_rows(content: bytes) -> int:
    import pyarrow as pa
    from pyarrow import csv

    parsing = csv.ParseOptions(newlines_in_values=True)
    return int(csv.read_csv(pa.BufferReader(content), parse_options=parsing).num_rows)
