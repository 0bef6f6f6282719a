"""Partitions of an input: each record in exactly one of them, in order, in whole batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import Csv, Dataset
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.estimator.prediction import task
from psflow.ps_runtime.estimator.prediction.task import DealtBatches, FilePartition, partitions_of


def rows(number: int) -> Any:
    return np.arange(number, dtype=np.float64)


def shapes(partitions: Iterator[Any]) -> list[list[int]]:
    return [[len(batch) for batch in partition.features] for partition in partitions]


@pytest.mark.parametrize(
    ("num_rows", "batch_size", "expected"),
    [
        (1, 1, [[1]]),
        (10, 4, [[4, 4, 2]]),
        (33, 1, [[1] * 32, [1]]),
        (70, 2, [[2] * 32, [2] * 3]),
    ],
)
def test_batches_travel_together_up_to_a_number(num_rows: int, batch_size: int, expected: list[list[int]]) -> None:
    assert shapes(partitions_of(Dataset(rows(num_rows)).batch(batch_size))) == expected


def test_batches_travel_together_up_to_a_size_and_a_larger_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "PARTITION_BYTES", 8 * 10)
    sizes = (4, 6, 1, 11, 5, 5, 5)
    assert shapes(partitions_of(iter([(rows(size), None) for size in sizes]))) == [[4, 6], [1], [11], [5, 5], [5]]


def test_a_partition_says_which_records_it_has() -> None:
    partitions = list(partitions_of(iter([({"x": rows(3), "y": rows(3)}, None)] * 33)))
    assert [(partition.first_record, partition.num_records) for partition in partitions] == [(0, 96), (96, 3)]
    assert str(partitions[1]) == "records 96 to 98 of the predict input (the first is 0)"
    assert str(DealtBatches(7, 1, ())) == "record 7 of the predict input (the first is 0)"


def test_a_reader_is_asked_for_no_more_than_a_partition() -> None:
    batches = iter([(rows(1), None)] * 100)
    next(partitions_of(batches))
    assert len(list(batches)) == 100 - 33


@pytest.mark.parametrize(
    ("batch_size", "size", "last"), [(7, 35, 20), (None, 1000, 1000), (1, 32, 8), (40, 40, 40), (999, 999, 1)]
)
def test_files_are_cut_into_ranges_of_whole_batches(tmp_path: Path, batch_size: int, size: int, last: int) -> None:
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *(f"{i},{i}" for i in range(1000))]))
    opened = open_input(lambda: Csv(str(tmp_path / "a.csv"), label="y").read().batch(batch_size))
    partitions = list(partitions_of(opened))
    assert all(isinstance(partition, FilePartition) for partition in partitions)
    assert (partitions[0].start, partitions[-1].stop) == (0, 1000)
    assert all(one.stop == other.start for one, other in pairwise(partitions))
    assert {partition.stop - partition.start for partition in partitions[:-1]} <= {size}
    assert partitions[-1].stop - partitions[-1].start == last


def test_nothing_has_no_partitions() -> None:
    assert list(partitions_of(iter(()))) == []
