from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.tasks.prediction.partitions import PARTITION_BYTES, cut_arrays, cut_records

FILES = st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=5).filter(any)
"""The records of each chunk of each file; a file may have none."""


def index_of(files: list[list[int]]) -> RecordIndex:
    """Return an index of files whose records take ten bytes each."""
    chunks = [(number, size) for number, sizes in enumerate(files) for size in sizes]
    return RecordIndex(
        files=tuple(DataFile(f"/in/{n}.csv", 10 * sum(sizes), "s") for n, sizes in enumerate(files)),
        record_format=DelimitedText(),
        columns=(RawColumn("a", "float64"),),
        unreadable={},
        chunk_files=np.array([number for number, _ in chunks], np.int32),
        chunk_places=np.zeros((len(chunks), 2), np.int64),
        starts_run=np.ones(len(chunks), np.bool_),
        first_records=np.cumsum([0, *(size for _, size in chunks)], dtype=np.int64),
    )


@given(FILES, st.integers(1, 300))
def test_partitions_are_runs_of_whole_chunks_of_one_file_that_hold_each_record_once(
    files: list[list[int]], partition_bytes: int
) -> None:
    index = index_of(files)
    parts = list(cut_records(index, partition_bytes))
    assert [part.index for part in parts] == list(range(len(parts)))
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == index.num_records
    for part in parts:
        assert {part.start, part.stop} <= set(index.first_records.tolist())
        assert index.file_of(index.chunk_of(part.start)) == index.file_of(index.chunk_of(part.stop - 1))
        assert part.file == index.file_of(index.chunk_of(part.start)).shown
        assert part.first_in_file == index.first_in_file(index.chunk_of(part.start))
        assert part.num_bytes == 10 * part.num_records
        is_one_chunk = index.chunk_of(part.start) == index.chunk_of(part.stop - 1)
        assert part.num_bytes <= partition_bytes or is_one_chunk


@given(FILES, st.integers(1, 300))
def test_two_partitions_of_a_file_in_turn_would_be_too_large_as_one(files: list[list[int]], size: int) -> None:
    parts = list(cut_records(index_of(files), size))
    for one, next_one in itertools.pairwise(parts):
        if one.file == next_one.file:
            index = index_of(files)
            first_chunk = index.chunk_of(next_one.start)
            following = int(index.first_records[first_chunk + 1]) - next_one.start
            assert one.num_bytes + 10 * following > size


@given(st.integers(1, 10**7), st.integers(1, 10**6))
def test_arrays_are_cut_into_ranges_of_nearly_one_size(num_records: int, record_bytes: int) -> None:
    parts = list(cut_arrays(num_records, record_bytes * 100, "a.npz")) if num_records < 10**4 else []
    if parts:
        assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
        assert parts[-1].stop == num_records
        sizes = {part.num_records for part in parts}
        assert min(sizes) > 0
        assert max(sizes) - min(sizes) <= 1
        assert max(part.num_bytes for part in parts) <= PARTITION_BYTES + record_bytes * 100


def test_names_sort_as_the_records_do() -> None:
    assert [part.name for part in cut_records(index_of([[1, 1], [1]]), 1)] == ["part-00000", "part-00001", "part-00002"]
