"""Records of a generator, made into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from psflow import Dataset
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.errors import InputError


def lines() -> Iterator[str]:
    for i in range(5):
        yield f"{i};{2 * i}"


def parse(line: str) -> tuple[dict[str, Any], Any]:
    x, y = line.split(";")
    return {"x": np.float32(x)}, np.float32(y)


def test_each_record_is_in_one_batch_in_order() -> None:
    opened = open_input(lambda: Dataset.from_generator(lines).map(parse).batch(2))
    assert not isinstance(opened, Dataset)
    found = [(features["x"].tolist(), labels.tolist()) for features, labels in opened]  # type: ignore[union-attr]
    assert found == [([0, 1], [0, 2]), ([2, 3], [4, 6]), ([4], [8])]


def test_the_parts_of_a_tuple_are_the_arguments_of_the_next_function() -> None:
    doubled = Dataset.from_generator(lines).map(parse).map(lambda features, label: (features["x"], 2 * label)).batch(5)
    [(features, labels)] = doubled
    assert (features.dtype, features.tolist(), labels.tolist()) == (np.float32, [0, 1, 2, 3, 4], [0, 4, 8, 12, 16])


def test_features_alone_are_a_batch_without_labels() -> None:
    opened = open_input(lambda: Dataset.from_generator(lambda: [{"x": [1, 2]}, {"x": [3, 4]}]).batch(2))
    assert [(features["x"].tolist(), labels) for features, labels in opened] == [([[1, 2], [3, 4]], None)]  # type: ignore


def test_each_reading_calls_the_generator_again_and_reads_no_more_than_it_gives() -> None:
    calls: list[int] = []

    def counting() -> Iterator[int]:
        for i in range(1000):
            calls.append(i)
            yield i

    stream = Dataset.from_generator(counting).batch(3)
    assert [next(iter(stream)).tolist() for _ in range(2)] == [[0, 1, 2]] * 2
    assert calls == [0, 1, 2] * 2


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Dataset.from_generator([1]), "from_generator expects a function, got list"),
        (lambda: Dataset.from_generator(lines).map(3), "map expects a function, got int"),
        (lambda: Dataset.from_generator(lines).batch(0), "batch_size of batch is 0: expected an int >= 1"),
        (
            lambda: Dataset.from_generator(lambda: [{"x": 1}, {"y": 3}]).batch(2),
            r"records 0 to 1 of \S+ \(the first is 0\): expected features x in each",
        ),
        (lambda: Dataset.from_generator(lambda: [(1, 2), 3]).batch(2), r"records 0 to 1 .*: expected tuples of 2"),
        (
            lambda: Dataset.from_generator(lambda: [0, 1, [1, 2], [1]]).batch(2),
            r"records 2 to 3 .*: expected values of one shape, got \(1,\) and \(2,\)",
        ),
    ],
)
def test_what_makes_no_batches_is_refused(make: Callable[[], Any], fault: str) -> None:
    with pytest.raises(InputError, match=f"^{fault}"):
        list(make())


@pytest.mark.parametrize(
    ("values", "got"),
    [
        ([5, "n/a"], "int64 and <U3"),
        ([b"a", "b"], r"\|S1 and <U1"),
        ([np.datetime64("2026-11-23"), 3.5], r"datetime64\[D\] and float64"),
        ([True, "yes"], "bool and <U3"),
        ([2**63, -1], "uint64 and int64"),
    ],
)
def test_values_that_no_dtype_holds_as_they_are_are_refused(values: list[Any], got: str) -> None:
    makers: list[Callable[[], Any]] = [
        lambda: Dataset.from_generator(lambda: ({"age": value} for value in values)).batch(2),
        lambda: Dataset.range(2).map(lambda i: {"age": values[i]}).batch(2),
    ]
    for make in makers:
        with pytest.raises(
            InputError, match=rf"records? 0 to (record )?1.*, 'age': expected .*, got {got}; return one"
        ):
            list(make())


def test_numbers_of_a_batch_are_promoted() -> None:
    [mixed] = Dataset.from_generator(lambda: [1, 2.5, np.float32(3), True]).batch(4)
    assert (mixed.dtype, mixed.tolist()) == (np.float64, [1, 2.5, 3, 1])
    [whole] = Dataset.from_generator(lambda: [np.uint8(200), np.int8(-1), False]).batch(3)
    assert (whole.dtype, whole.tolist()) == (np.int16, [200, -1, 0])
    [texts] = Dataset.from_generator(lambda: ["a", "bcd"]).batch(2)
    assert texts.tolist() == ["a", "bcd"]


def test_a_function_that_finds_nothing_to_take_is_no_end_of_the_data() -> None:
    stream = Dataset.from_generator(lines).map(lambda line: next(part for part in [line] if not part.startswith("2")))
    with pytest.raises(InputError, match=r"<lambda> raised StopIteration for record 2 of lines \(the first is 0\) at "):
        list(stream.batch(1))


def test_an_input_without_a_batch_size_is_refused() -> None:
    with pytest.raises(InputError, match=r"input_fn \S+ returned a data set without a batch size; call its batch"):
        open_input(lambda: Dataset.from_generator(lines).map(parse))
