"""Divides the records of an input into partitions, one for each task."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from psflow.ps_runtime.tabular_files.index import RecordIndex

PARTITION_BYTES = 32 * 1024**2
"""Approximate bytes of input in a partition. Partitions depend only on the input, so that any number of workers can
continue the work of others."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Records ``[start, stop)`` of the input, in one file, which become one part of the output."""

    index: int
    start: int
    stop: int
    file: str
    first_in_file: int
    num_bytes: int

    @property
    def name(self) -> str:
        """Name of its output files without suffix; names sort like the records."""
        return f"part-{self.index:05d}"

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.stop - self.start


def cut_records(index: RecordIndex, partition_bytes: int = PARTITION_BYTES) -> Iterator[Partition]:
    """Yield runs of whole chunks of one file, of about `partition_bytes`."""
    bounds, files = index.first_records.tolist(), index.chunk_files.tolist()
    number = start_chunk = 0
    for chunk, file_number in enumerate(files):
        file = index.files[file_number]
        if chunk == start_chunk and (not chunk or files[chunk - 1] != file_number):
            first = bounds[chunk]
            record_bytes = file.size / (bounds[bisect_right(files, file_number)] - first)
        start, stop = bounds[start_chunk], bounds[chunk + 1]
        num_bytes = round((stop - start) * record_bytes)
        next_bytes = 0 if chunk + 1 == len(files) else round((bounds[chunk + 2] - stop) * record_bytes)
        ends_file = chunk + 1 == len(files) or files[chunk + 1] != file_number
        if ends_file or num_bytes + next_bytes > partition_bytes:
            yield Partition(number, start, stop, file.shown, start - first, num_bytes)
            number, start_chunk = number + 1, chunk + 1


def cut_arrays(num_records: int, record_bytes: int, shown: str) -> Iterator[Partition]:
    """Yield nonempty ranges of nearly equal size of records in memory.

    Examples
    --------
    >>> [(part.start, part.stop) for part in cut_arrays(3, PARTITION_BYTES // 2, "rows.npz")]
    [(0, 1), (1, 3)]
    """
    num_parts = min(num_records, math.ceil(num_records * record_bytes / PARTITION_BYTES))
    for index in range(num_parts):
        start, stop = num_records * index // num_parts, num_records * (index + 1) // num_parts
        yield Partition(index, start, stop, shown, start, (stop - start) * record_bytes)
