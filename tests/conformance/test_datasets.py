"""Data sets as programs build them with tf.data; tests/parity compares orders."""

from __future__ import annotations

import functools
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas
import pytest

from psflow import Dataset, EstimatorSpec, GradientDescent, SessionRunArgs, SessionRunHook, get_variable
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.input_pipeline import InputContext, open_input
from psflow.ps_runtime.data.row_order import RowOrder
from psflow.ps_runtime.data.splittable import KnownInput, SplittableInput
from psflow.ps_runtime.data.transformations import Transformations
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.evaluation import batches_of, input_digest
from psflow.ps_runtime.server.input_position import InputPosition
from psflow.ps_runtime.specs.input import InputSpec, RecordRange
from psflow.ps_runtime.specs.schema import MATRIX, ArraySpec, Scaling
from tests.limits import HANG_SECS

NUM_RECORDS = 11


def records() -> Dataset:
    return Dataset.range(NUM_RECORDS)


def stream(count: int = NUM_RECORDS) -> Any:
    return Dataset.from_generator(lambda: range(count))


def named(rows: Any) -> dict[str, Any]:
    return {"row": rows}


def of_torch() -> Transformations:
    pytest.importorskip("torch")
    from psflow.torch import batches

    return batches([named(row) for row in range(NUM_RECORDS)], 2, shuffle_seed=3)


def values(data: Transformations) -> list[Any]:
    return [np.asarray(element).tolist() for element in data]


BY_NUMBER: dict[str, Callable[[], Transformations]] = {
    "map": lambda: records().map(named).batch(2),
    "map in threads": lambda: records().map(named, num_parallel_calls=2).batch(2),
    "map of batches": lambda: records().batch(2).map(named),
    "shuffle": lambda: records().shuffle(5, seed=3).map(named).batch(2),
    "shuffle of batches": lambda: records().map(named).batch(2).shuffle(3, seed=3),
    "take": lambda: records().take(7).batch(2).map(named),
    "skip": lambda: records().batch(3).skip(1).map(named),
    "repeat before batch": lambda: records().take(5).repeat(2).batch(3).map(named),
    "repeat after batch": lambda: records().batch(3).repeat(2).map(named),
    "concatenate": lambda: records().concatenate(Dataset.range(20, 24)).map(named).batch(4),
    "enumerate": lambda: records().enumerate(5).map(lambda i, n: {"row": n, "i": i}).batch(3),
    "zip": lambda: Dataset.zip(records(), records().skip(2)).map(lambda a, b: {"row": a, "b": b}).batch(2),
    "batches of torch": of_torch,
}
"""Data sets of which the replicas read their own batches."""

STREAMS: dict[str, Callable[[], Transformations]] = {
    "from_generator": lambda: stream().map(named).batch(2),
    "map in threads": lambda: stream().map(named, num_parallel_calls=2).batch(2),
    "filter": lambda: records().filter(lambda n: n % 3 > 0).map(named).batch(2),
    "interleave": lambda: records().interleave(lambda n: Dataset.range(n), 3).map(named).batch(4),
    "shuffle": lambda: stream().shuffle(4, seed=2).map(named).batch(2),
    "repeat": lambda: stream(5).repeat(2).map(named).batch(3),
    "take and skip": lambda: stream().skip(1).take(8).map(named).batch(3),
    "zip": lambda: Dataset.zip(stream(), records()).map(lambda a, b: {"row": a, "b": b}).batch(2),
}
"""Data sets that one reader deals out."""


def rows_of(data: Transformations) -> list[list[int]]:
    return [batch["row"].tolist() for batch in data]


# Who reads what


def position_of(opened: SplittableInput, split_batches: int) -> InputPosition:
    return InputPosition(InputSpec(opened.num_records, opened.batch_size, opened.num_epochs, split_batches))


@pytest.mark.parametrize("split_batches", [1, 2])
@pytest.mark.parametrize("name", BY_NUMBER)
def test_two_replicas_read_each_batch_once_over_a_resume(name: str, split_batches: int) -> None:
    opened = [open_input(BY_NUMBER[name]) for _ in range(2)]
    assert all(isinstance(each, SplittableInput) for each in opened)
    position, found = position_of(opened[0], split_batches), []
    for turn in range(2 * (2 + len(rows_of(BY_NUMBER[name]())))):
        granted = position.take(turn % 2)
        if granted is None:
            continue
        found.append(opened[turn % 2].read(*granted)[0]["row"].tolist())
        position.commit(granted)
        if turn == 2:  # a checkpoint, from which other processes go on
            position = InputPosition.restored(position.spec, json.loads(json.dumps(position.to_facts())))
            opened = [open_input(BY_NUMBER[name]) for _ in range(2)]
    assert (position.num_repeats, position.num_misses) == (0, 0)
    assert sorted(found) == sorted(rows_of(BY_NUMBER[name]()))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_yields_the_same_batches_to_who_reads_it_again(name: str) -> None:
    opened = open_input(STREAMS[name])
    assert not isinstance(opened, SplittableInput)
    again = open_input(STREAMS[name])
    found = [features["row"].tolist() for features, _ in opened]
    assert found == [features["row"].tolist() for features, _ in again] == rows_of(STREAMS[name]())


@pytest.mark.parametrize("num_epochs", [None, 3])
@pytest.mark.parametrize("reshuffles", [True, False])
def test_pipelines_that_each_read_all_of_a_shuffled_stream_have_orders_of_their_own(
    reshuffles: bool, num_epochs: int | None
) -> None:
    def passes(pipeline: int) -> list[tuple[int, ...]]:
        data = stream().shuffle(11, seed=2, reshuffle_each_iteration=reshuffles).batch(11).repeat(num_epochs)
        opened = batches_of(open_input(lambda: data, InputContext(3, pipeline), mode="train"))
        return [tuple(features.tolist()) for features, _ in itertools.islice(opened, 3)]

    orders = [order for pipeline in range(3) for order in passes(pipeline)]
    assert len(set(orders)) == (9 if reshuffles else 1)
    assert all(sorted(order) == list(range(11)) for order in orders)


class Rows(SessionRunHook):
    """Keeps the rows of each step, and fails after one of them."""

    def __init__(self, seen: dict[int, list[int]], last_step: int) -> None:
        self._seen, self._last_step = seen, last_step

    def before_run(self, run_context: Any) -> SessionRunArgs:
        return SessionRunArgs(["row", "global_step"])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        rows, step = run_values.results
        self._seen[step] = rows.tolist()
        if step == self._last_step:
            raise ZeroDivisionError("as planned")


def counts(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    w = get_variable("w", initializer=0.5)
    gradients = {"w": np.float32(0.1)}
    return EstimatorSpec(
        mode,
        predictions={"row": features["row"]},
        loss=w + 0.0,
        train_op=GradientDescent(0.1).apply_gradients(gradients),
    )


@pytest.mark.parametrize(
    "input_fn",
    [BY_NUMBER["map"], BY_NUMBER["repeat before batch"], of_torch, STREAMS["map in threads"], STREAMS["shuffle"]],
)
def test_training_that_was_interrupted_reads_on(make: Callable[..., Any], input_fn: Callable[[], Any]) -> None:
    estimator = make(counts, save_checkpoints_steps=1)
    seen: dict[int, list[int]] = {}
    with pytest.raises(ZeroDivisionError):
        estimator.train(input_fn, [Rows(seen, 2)])
    assert len(seen) == 2
    estimator.train(input_fn, [Rows(seen, 100)])
    assert list(seen.values()) == rows_of(input_fn())


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            BY_NUMBER["map"],
            lambda: records().map(named).batch(3),
            "4 batches of 3 rows, .* 2 it was 6 batches of 2 rows",
        ),
        (
            lambda: records().map(named).batch(4),
            lambda: records().map(named).batch(5),
            "3 batches of 5 rows, and up to step 2 it was 3 batches of 4 rows",
        ),
        (
            BY_NUMBER["map"],
            lambda: Dataset({"row": np.arange(6)}).batch(1),
            "6 records, and up to step 2 it was 6 batches of 2 rows",
        ),
        (
            lambda: Dataset({"row": np.arange(11)}).repeat().batch(4),
            lambda: Dataset({"row": np.arange(11)}).repeat().batch(3),
            "33 records, and up to step 2 it was 44 records",
        ),
        (STREAMS["filter"], BY_NUMBER["map"], "6 batches of 2 rows, and up to step 2 it was a generator"),
    ],
)
def test_a_position_in_an_input_of_other_records_is_told_to_be_lost(
    make: Callable[..., Any], caplog: pytest.LogCaptureFixture, before: Any, after: Any, words: str
) -> None:
    estimator = make(counts, save_checkpoints_steps=1)
    first: dict[int, list[int]] = {}
    with pytest.raises(ZeroDivisionError):
        estimator.train(before, [Rows(first, 2)])
    assert not caplog.messages
    seen: dict[int, list[int]] = {}
    estimator.train(after, [Rows(seen, 100)], max_steps=4)
    assert list(seen.values()) == [batch["row"].tolist() for batch in itertools.islice(after(), 2)]
    told = [message for message in caplog.messages if "the train input is" in message]
    assert len(told) == 1
    assert re.search(rf"{words}: it is read from its start, .* are used again", told[0])


def test_a_position_holds_for_batches_of_another_size_in_memory(
    make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    estimator = make(counts, save_checkpoints_steps=1)
    data = Dataset({"row": np.arange(11)})
    with pytest.raises(ZeroDivisionError):
        estimator.train(lambda: data.batch(2), [Rows({}, 2)])
    seen: dict[int, list[int]] = {}
    estimator.train(lambda: data.batch(3), [Rows(seen, 100)])
    assert sorted(itertools.chain.from_iterable(seen.values())) == list(range(4, 11))
    assert not [message for message in caplog.messages if "from its start" in message]


def test_what_is_in_memory_stays_known_and_batches_are_not_computed() -> None:
    data = Dataset.from_tensor_slices(({"x": np.arange(6)}, np.arange(6)))
    opened = open_input(lambda: data.shuffle(6, seed=1).repeat().batch(4))
    assert isinstance(opened, KnownInput)
    assert opened.distinct_labels() is not None
    assert not isinstance(open_input(lambda: data.map(lambda f, y: (f, y)).batch(2)), KnownInput)


@pytest.mark.parametrize("num_epochs", [None, 3])
@pytest.mark.parametrize("batch_size", [1, 4, 7, 12])
def test_batches_that_hold_two_epochs_are_the_same_in_memory_and_computed(
    batch_size: int, num_epochs: int | None
) -> None:
    data = records().shuffle(4, seed=9).repeat(num_epochs)
    computed = data.by_number().batch(batch_size)
    in_memory = data.batch(batch_size)
    opened = open_input(lambda: in_memory)
    position, found = position_of(opened, 3), []
    while (granted := position.take(0)) is not None and len(found) < 40:
        found.append(opened.read(*granted)[0].tolist())
        position.commit(granted)
    assert found == [batch.tolist() for batch in itertools.islice(computed, len(found))]
    assert len(found) == (40 if num_epochs is None else -(-3 * NUM_RECORDS // batch_size))


def test_a_small_rest_is_left_out_of_what_is_in_memory() -> None:
    opened = open_input(lambda: records().batch(4, drop_remainder=True))
    assert (opened.num_records, opened.read(0, 4, 8)[0].tolist()) == (8, [4, 5, 6, 7])
    assert list(records().batch(12, drop_remainder=True)) == []


def test_an_evaluation_of_another_order_or_other_batches_has_another_digest() -> None:
    data = records()
    shuffled = data.shuffle(11, seed=1)
    others = [
        data.batch(2),
        data.batch(3),
        data.batch(3, drop_remainder=True),
        shuffled.batch(2),
        data.shuffle(5, seed=1).batch(2),
        data.shuffle(11, seed=2).batch(2),
        data.shuffle(11, seed=1, reshuffle_each_iteration=False).batch(2),
        data.repeat(2).batch(2),
    ]
    assert len({input_digest(open_input(lambda opened=each: opened), None) for each in others}) == len(others)
    assert input_digest(open_input(BY_NUMBER["map"]), None) == input_digest(open_input(STREAMS["filter"]), None) == ""


@pytest.mark.parametrize("order", [RowOrder(buffer_size=0), RowOrder(num_joined=0), RowOrder(buffer_size=1.5)])
def test_an_order_of_numbers_out_of_range_is_refused(order: RowOrder) -> None:
    with pytest.raises(InputError, match=r"(buffer_size|num_joined) is .*: expected an int >= 1"):
        Dataset(np.arange(3), order=order)


# What evaluation and prediction read


@pytest.mark.parametrize(
    ("make_data", "expected"),
    [
        (lambda data: data.repeat().batch(4), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]),
        (lambda data: data.repeat().batch(4, drop_remainder=True), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (lambda data: data.batch(6).repeat(), [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]),
        (lambda data: data.batch(6).repeat(3), [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]),
        (lambda data: data.repeat().batch(6).repeat(2), [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]),
        (lambda data: data.repeat(2).batch(20), [[*range(11), *range(9)], [9, 10]]),
        (lambda data: data.repeat().take(13).batch(7), [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 0, 1]]),
        (lambda data: data.batch(6).repeat(2).take(3), [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [0, 1, 2, 3, 4, 5]]),
        (lambda data: Dataset.zip(data.repeat(), data.repeat()).map(lambda a, b: b).batch(20), [list(range(11))]),
    ],
)
@pytest.mark.parametrize("then", ["as it is", "map", "filter"])
@pytest.mark.parametrize("make_rows", [records, lambda: records().map(lambda n: n), stream])
@pytest.mark.parametrize("mode", ["eval", "infer"])
def test_evaluation_and_prediction_read_each_row_once(
    make_data: Any, expected: list[list[int]], make_rows: Any, then: str, mode: str
) -> None:
    def input_fn() -> Any:
        data = make_data(make_rows())
        match then:
            case "map":
                return data.map(lambda rows: rows)
            case "filter":
                return data.filter(lambda rows: True)
        return data

    read = batches_of(open_input(input_fn, mode=mode))
    assert [features.tolist() for features, _ in itertools.islice(read, 9)] == expected


@pytest.mark.parametrize("make_rows", [records, stream])
def test_evaluation_reads_rows_again_where_a_zip_with_what_ends_counts_on_it(make_rows: Any) -> None:
    data = Dataset.zip(make_rows().repeat(), Dataset.range(13)).map(lambda row, n: row)
    read = batches_of(open_input(lambda: data.batch(20), mode="eval"))
    assert [features.tolist() for features, _ in itertools.islice(read, 3)] == [[*range(11), 0, 1]]


# Shuffling


@pytest.mark.parametrize("make_data", [records, lambda: records().map(lambda n: n), stream])
@pytest.mark.parametrize("buffer_size", [2, 3, 11, 10**12])
def test_a_pass_has_an_order_of_its_own_within_the_buffer(make_data: Any, buffer_size: int) -> None:
    if buffer_size == 10**12 and make_data is stream:
        buffer_size = 50
    shuffled = make_data().shuffle(buffer_size, seed=7).repeat(2)
    both = values(shuffled)
    first, second = both[:NUM_RECORDS], both[NUM_RECORDS:]
    assert sorted(first) == sorted(second) == list(range(NUM_RECORDS))
    assert first != second
    assert list(range(NUM_RECORDS)) not in (first, second)
    assert all(record < place + buffer_size for place, record in enumerate(first))
    assert both == values(shuffled)
    assert both != values(make_data().shuffle(buffer_size, seed=8).repeat(2))


@pytest.mark.parametrize("make_data", [records, lambda: records().map(lambda n: n), stream])
def test_every_pass_has_the_same_order_where_that_is_asked_for(make_data: Any) -> None:
    both = values(make_data().shuffle(11, seed=7, reshuffle_each_iteration=False).repeat(2))
    assert both[:NUM_RECORDS] == both[NUM_RECORDS:] != list(range(NUM_RECORDS))
    opened = open_input(lambda: records().shuffle(11, seed=7, reshuffle_each_iteration=False).batch(11).repeat())
    assert (
        opened.read(0, 0, 11)[0].tolist() == opened.read(5, 0, 11)[0].tolist() == values(records().shuffle(11, seed=7))
    )


# Threads


def test_functions_of_map_run_side_by_side_and_results_stay_in_order() -> None:
    second_is_done = threading.Event()

    def wait_for_the_next(n: int) -> int:
        if n == 0:
            assert second_is_done.wait(HANG_SECS)
        if n == 1:
            second_is_done.set()
        return int(n)

    assert values(stream(5).map(wait_for_the_next, num_parallel_calls=2)) == [0, 1, 2, 3, 4]


def test_records_of_a_batch_are_computed_side_by_side() -> None:
    both = threading.Barrier(2)

    def meet(n: int) -> int:
        both.wait(HANG_SECS)
        return int(n)

    opened = open_input(lambda: Dataset.range(4).map(meet, num_parallel_calls=2).batch(4))
    assert opened.read(0, 0, 1)[0].tolist() == [0, 1, 2, 3]


def map_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("psflow-map")]


def test_threads_read_a_bounded_number_ahead_and_end_with_who_reads() -> None:
    given = []

    def counting() -> Iterator[int]:
        for n in range(1000):
            given.append(n)
            yield n

    reading = iter(Dataset.from_generator(counting).map(lambda n: n, num_parallel_calls=3).batch(2))
    assert next(reading).tolist() == [0, 1]
    assert 2 <= len(given) <= 2 + 2 * 3
    assert map_threads()
    reading.close()
    assert not map_threads()


@pytest.mark.parametrize("num_parallel_calls", [None, 3])
def test_errors_come_in_order_after_the_records_before(num_parallel_calls: int | None) -> None:
    def breaks() -> Iterator[int]:
        yield from range(3)
        raise OSError("the source broke")

    for data, error in (
        (stream().map(lambda n: 6 // (n - 3), num_parallel_calls), "ZeroDivisionError for record 3 of"),
        (Dataset.from_generator(breaks).map(lambda n: n, num_parallel_calls), "the source broke"),
    ):
        reading = iter(data)
        assert len(list(itertools.islice(reading, 3))) == 3
        with pytest.raises((InputError, OSError), match=error):
            next(reading)
    assert not map_threads()


# What goes wrong


def raises(value: Any) -> Any:
    return next(iter([])) if value == 2 else value


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (stream().map(raises), r"record 2 of \S+ \(the first is 0\)"),
        (records().map(raises), "record 2"),
        (records().skip(1).map(raises).batch(3), "record 2"),
        (records().concatenate(records()).skip(5).map(raises), "record 2 of the second data set"),
        (records().batch(1).map(raises), r"batch 2 \(record 2 to record 2\)"),
        (Dataset.zip(records(), records()).map(lambda a, b: raises(b)), "record 2"),
        (Dataset.zip(records(), records().skip(1)).map(lambda a, b: raises(a)), "record 2 with record 3"),
        (records().filter(lambda n: raises(n) is not None), r"record 2 of the data set \(the first is 0\)"),
        (records().interleave(lambda n: Dataset.range(1 + raises(n)), 1), r"record 2 of the data set"),
        (records().shuffle(11, seed=1).map(raises).batch(11), "record 2"),
        (
            records().shuffle(11, seed=1).filter(lambda n: raises(n) > 2),
            r"record \d+ of the shuffled or joined data set \(the",
        ),
        (stream().shuffle(4, seed=1).map(raises), r"record \d+ of \S+, shuffled \(the first is 0\)"),
        (stream().filter(lambda n: n > 0).map(raises), r"record 1 of \S+, filtered \(the first is 0\)"),
        (stream().skip(2).repeat().map(raises), r"record 0 of \S+ without the first 2, repeated \(the first is 0\)"),
    ],
)
def test_what_a_function_raises_is_told_with_the_record_the_file_and_the_line(data: Any, place: str) -> None:
    with pytest.raises(InputError, match=rf"raised StopIteration for {place}.* at tests/conformance/\w+\.py:\d+$"):
        list(data)


def one(row: int) -> int:
    return row


def two(row: int, label: int) -> int:
    return row


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            records().map(two),
            r"two at \S+:LINE takes \(row: .*\) -> .*, but gets 1 argument for record 0; the parts of",
        ),
        (records().map(functools.partial(two, 1, 2)), r"two at .*:LINE takes \(\).*, but gets 1 argument for record 0"),
        (records().filter(two), "two at .*:LINE takes .* but gets 1 argument for record 0 of the data set"),
        (records().interleave(two, 2), "two at .*:LINE takes .* but gets 1 argument for record 0 of the data set"),
        (Dataset.zip(records(), records(), records()).map(two), "two at .*:LINE takes .* but gets 3 arguments for rec"),
        (records().batch(2).map(two), r"two at .*:LINE takes .* argument for batch 0 \(record 0 to record 1\)"),
    ],
)
def test_a_function_of_other_arguments_is_told_where_it_stands(data: Any, told: str) -> None:
    line = two.__code__.co_firstlineno
    with pytest.raises(InputError, match=told.replace("LINE", str(line))):
        list(data)


def test_a_function_that_gets_its_arguments_and_passes_on_others_is_told_at_its_line() -> None:
    with pytest.raises(
        InputError, match=r"raised TypeError for record 0 at tests/conformance/test_datasets\.py:\d+: two"
    ):
        list(records().map(lambda n: two(n)))
    with pytest.raises(InputError, match=r"^builtins:int raised TypeError for record 0: "):
        list(Dataset.zip(records(), records()).map(int))


def ragged(n: int) -> Any:
    return np.zeros(1 if n < 4 else 2)


def ragged_of(number: int, pair: Any) -> Any:
    return ragged(number)


@pytest.mark.parametrize(
    ("make_data", "fault"),
    [
        (lambda: records().map(ragged).batch(3), r"record 3 to record 5: expected values of one shape, got \(1,\) and"),
        (lambda: stream().map(ragged).batch(3), r"records 3 to 5 of .*: expected values of one shape, got \(1,\) and"),
        (
            lambda: records().map(ragged).shuffle(11, seed=1).batch(5),
            "^5 elements, shuffled or joined: the first is record 7, the last record 0: expected values of one shape",
        ),
        (
            lambda: records().batch(3).map(lambda n: n + 0).shuffle(4, seed=1).map(lambda n: n / "a"),
            r"raised \w+ for batch 0 \(record 0 to record 2\)",
        ),
        (
            lambda: records().repeat(2).map(lambda n: n).skip(10).batch(3).map(lambda n: n / "a"),
            r"for batch 0 \(3 elements, shuffled or joined: the first is record 10, the last record 1\)",
        ),
        (
            lambda: Dataset.range(3).map(ragged).concatenate(records()).skip(2).batch(9),
            "9 elements, shuffled or joined: the first is record 2, the last record 7 of the second data set: expected",
        ),
        (
            lambda: Dataset.range(3).map(one).concatenate(records().map(ragged)).skip(3).batch(9),
            "^record 0 of the second data set to record 8 of the second data set: expected values of one shape",
        ),
        (
            lambda: Dataset.range(3).map(one).concatenate(records()).batch(2).map(lambda n: n / "a"),
            r"for batch 0 \(record 0 to record 1\)",
        ),
        (
            lambda: Dataset.zip(records(), records().shuffle(11, seed=1)).enumerate().map(ragged_of).batch(11),
            "11 elements, shuffled or joined: the first is record 0 with record 7, the last record 10 with record 3: ",
        ),
        (
            lambda: records().map(one).batch(2).batch(2).map(lambda n: n / "a"),
            r"for batch 0 \(batch 0 \(record 0 to record 1\) to batch 1 \(record 2 to record 3\)\)",
        ),
        (lambda: records().map(lambda n: None).batch(3), "record 0 to record 2: expected numbers, booleans or texts"),
        (lambda: records().map(lambda n: [[1], [1, 2]]).batch(3), "expected values that make an array"),
        (lambda: records().map(lambda n: (n,) * (1 + n // 3)).batch(4), "expected tuples of 1, as the first of them"),
        (lambda: records().map(lambda n: {"ab"[n // 3]: n}).batch(4), "expected features a in each"),
        (lambda: records().filter(lambda n: n), r"filter returned np.int64\(0\) for record 0 .*: expected a bool"),
        (lambda: records().filter(lambda n: [True, True]), "expected a bool"),
        (
            lambda: records().interleave(lambda n: [n], 2),
            "interleave returned list for record 0 .*: expected a Dataset",
        ),
        (lambda: records().shuffle(10), r"shuffle has no seed: .* such as shuffle\(10, seed=1\)"),
        (lambda: stream().shuffle(10), "shuffle has no seed"),
        (lambda: records().shuffle(0, seed=1), "buffer_size of shuffle is 0: expected an int >= 1"),
        (lambda: records().shuffle(2, seed=-1), "seed of shuffle is -1: expected an int >= 0"),
        (lambda: records().batch(2).shuffle(2, seed=1), r"shuffle comes after batch, .* by_number\(\)\.shuffle"),
        (lambda: records().repeat().shuffle(2, seed=1), "shuffle comes after repeat, which would mix epochs"),
        (lambda: records().shuffle(2, seed=1).shuffle(2, seed=1), "shuffle comes a second time: call it once"),
        (lambda: records().batch(2).batch(2), "batch comes a second time, which would make batches of batches"),
        (lambda: records().map(named).repeat().shuffle(2, seed=1), r"shuffle comes after repeat\(\), which never ends"),
        (lambda: records().repeat().skip(2), r"skip comes after repeat\(\), which never ends: call skip before it"),
        (lambda: records().repeat().concatenate(records()), r"concatenate comes after repeat\(\)"),
        (lambda: records().concatenate(records().repeat()), r"concatenate comes after repeat\(\)"),
        (lambda: records().repeat().enumerate(), r"enumerate comes after repeat\(\)"),
        (lambda: records().take(-1), "count of take is -1: expected an int >= 0"),
        (lambda: stream().skip(1.0), r"count of skip is 1\.0: expected an int >= 0"),
        (lambda: records().repeat(0), "num_epochs of repeat is 0: expected an int >= 1"),
        (lambda: records().repeat().repeat(0), "num_epochs of repeat is 0: expected an int >= 1"),
        (lambda: records().map(named, -1), "num_parallel_calls of map is -1: expected an int >= 1"),
        (lambda: stream().map(named, 0), "num_parallel_calls of map is 0: expected an int >= 1"),
        (lambda: records().map(3), "map expects a function, got int"),
        (lambda: records().filter(None), "filter expects a function, got NoneType"),
        (lambda: records().interleave(lambda n: records(), 0), "cycle_length of interleave is 0"),
        (lambda: records().interleave(lambda n: records(), 1, 0), "block_length of interleave is 0"),
        (lambda: records().prefetch(0), "buffer_size of prefetch is 0"),
        (lambda: records().enumerate(-1), "start of enumerate is -1"),
        (lambda: Dataset.zip(records(), [1]), r"zip expects data sets, .*, got Dataset, list"),
        (lambda: Dataset.zip(), "zip expects data sets, .*, got nothing"),
        (lambda: Dataset.from_tensor_slices(3), "from_tensor_slices: expected arrays with rows on axis 0, got 3"),
        (lambda: Dataset.from_tensor_slices(([1], [2, 3], [4])), r"expected arrays of one length, got \[1, 2\]"),
        (lambda: Dataset.from_tensor_slices(([1], [2, 3])), r"expected arrays of one length, got \[1, 2\]"),
        (lambda: records().concatenate([1, 2]), "concatenate expects a data set, .*, got list"),
        (lambda: stream().concatenate(None), "concatenate expects a data set, .*, got NoneType"),
        (lambda: records().batch(2, drop_remainder="no"), "drop_remainder of batch is 'no': expected True or False"),
        (lambda: records().map(one).batch(2, "no"), "drop_remainder of batch is 'no': expected True or False"),
        (lambda: stream().batch(2, 1), "drop_remainder of batch is 1: expected True or False"),
        (lambda: records().shuffle(2, 1, "no"), "reshuffle_each_iteration of shuffle is 'no': expected True or False"),
        (lambda: records().map(one).shuffle(2, 1, None), "reshuffle_each_iteration of shuffle is None: expected True"),
        (lambda: stream().shuffle(2, 1, 1), "reshuffle_each_iteration of shuffle is 1: expected True or False"),
        (lambda: stream().take(2**63), f"count of take is {2**63}: expected an int <= {2**63 - 1}"),
        (lambda: records().take("2"), "count of take is '2': expected an int >= 0"),
        (lambda: records().skip(True), "count of skip is True: expected an int >= 0"),
        (lambda: records().repeat(2.0), "num_epochs of repeat is 2.0: expected an int >= 1"),
        (lambda: records().shuffle("2", seed=1), "buffer_size of shuffle is '2': expected an int >= 1"),
        (lambda: Dataset.range("5"), r"range\('5'\): expected a stop, or a start and a stop, .*, all ints"),
        (lambda: Dataset.range(True), r"range\(True\): expected a stop"),
        (lambda: Dataset.range(), r"range\(\): expected a stop"),
        (lambda: Dataset.range(1, 2, 3, 4), r"range\(1, 2, 3, 4\): expected a stop"),
        (lambda: Dataset.range(1, 2, 0), r"range\(1, 2, 0\): expected a step that is not 0"),
        (lambda: Dataset.range(10**17), r"range\(10{17}\) does not fit into memory, .* from_generator\(lambda: range"),
        (lambda: Dataset.range(2**63, 2**63 + 1), "does not fit into memory, or into int64"),
        (lambda: Dataset.from_generator(two), r"from_generator: \S+:two at .* takes .*, but gets 0 arguments"),
        (lambda: Dataset.from_generator(lambda: None), "from_generator: .* returned NoneType, expected an iterable"),
        (lambda: Dataset.from_tensor_slices([[1], [1, 2]]), "from_tensor_slices: tensors is not an array: .*inhomogen"),
        (lambda: Dataset.from_tensor_slices(([1], {"a": [[1], [1, 2]]})), r"tensors\[1\]\['a'\] is not an array: "),
        (lambda: Dataset.from_tensors([[1], [1, 2]]), "from_tensors: tensors is not an array: .*inhomogen"),
        (
            lambda: Dataset.from_tensor_slices({"a": objects("x", None)}),
            r"tensors\['a'\] has dtype object, None in row 1",
        ),
        (lambda: Dataset.from_tensor_slices(()), "expected arrays of one length, got no array"),
        (
            lambda: Dataset({"a": [1]}, num_ids={"a": 2}).map(named),
            "declares num_ids takes only shuffle, repeat and batch",
        ),
        (
            lambda: Dataset({MATRIX: [[1.0]]}, columns=("a",), scaling=Scaling(255, 0, 1)).take(1),
            "declares columns takes only shuffle, repeat and batch",
        ),
    ],
)
def test_what_cannot_be_is_refused(make_data: Callable[[], Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        list(make_data())


@pytest.mark.parametrize("data", [records().map(named), stream().map(named), records().interleave(Dataset.range, 1)])
def test_an_input_without_a_batch_size_is_refused(data: Any) -> None:
    with pytest.raises(InputError, match=r"returned a data set without a batch size; call its batch.* return iter\("):
        open_input(lambda: data)


@pytest.mark.parametrize(
    "data",
    [
        Dataset.from_generator(lambda: ({"row": np.arange(2) + 2 * n} for n in range(4))),
        records().interleave(lambda n: Dataset.range(n).map(named).batch(2), 2),
        records().map(lambda n: {"row": np.arange(n + 1)}),
    ],
)
def test_elements_that_are_batches_already_are_those_of_an_iterator(make: Callable[..., Any], data: Any) -> None:
    seen: dict[int, list[int]] = {}
    make(counts).train(lambda: iter(data), [Rows(seen, 100)])
    assert list(seen.values()) == rows_of(data)
    assert len(seen) > 3


def objects(*values: Any) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def test_objects_are_rows_of_texts_numbers_or_booleans() -> None:
    frame = pandas.DataFrame({"word": ["a", "bc"], "kind": pandas.Categorical(["x", "y"]), "n": objects(1, 2.5)})
    [batch] = Dataset.from_tensor_slices(dict(frame)).batch(2)
    assert {name: (array.dtype.str, array.tolist()) for name, array in batch.items()} == {
        "word": ("<U2", ["a", "bc"]),
        "kind": ("<U1", ["x", "y"]),
        "n": ("<f8", [1.0, 2.5]),
    }


def test_an_input_without_a_batch_is_refused_by_train(make: Callable[..., Any]) -> None:
    for nothing in (records().take(0).batch(2), records().filter(lambda n: n > 20).batch(2).repeat()):
        with pytest.raises(InputError, match="returned no batch"):
            make(counts).train(lambda data=nothing: data.map(named))
    with pytest.raises(InputError, match="returned no batch"):
        make(counts).train(lambda: Dataset({"row": np.arange(11)}).batch(12, drop_remainder=True))


# What belongs to whom


def test_a_generator_may_fill_its_arrays_again() -> None:
    def filling() -> Iterator[Any]:
        buffer, line = np.zeros(2), [0]
        for n in range(3):
            buffer[:] = line[0] = n
            yield {"x": buffer, "y": line}

    [batch] = Dataset.from_generator(filling).batch(3)
    assert (batch["x"].tolist(), batch["y"].tolist()) == ([[0, 0], [1, 1], [2, 2]], [[0], [1], [2]])
    assert [e["x"][0] for e in Dataset.from_generator(filling).shuffle(3, seed=1)] != [2, 2, 2]


@pytest.mark.parametrize("make_data", [records, stream])
def test_a_function_may_fill_its_array_again(make_data: Callable[[], Any]) -> None:
    buffer = np.zeros(1)

    def fill(n: int) -> Any:
        buffer[:] = n
        return (buffer,)

    [(batch,)] = make_data().map(fill).batch(NUM_RECORDS)
    assert batch[:, 0].tolist() == list(range(NUM_RECORDS))


def test_a_function_cannot_write_to_the_arrays_of_the_data_set() -> None:
    rows = np.zeros((2, 2))

    def write(row: Any) -> Any:
        row += 1
        return row

    with pytest.raises(InputError, match=r"raised ValueError for record 0 .*read-only"):
        list(Dataset.from_tensor_slices(rows).map(write))
    assert rows.sum() == 0


# What the model reads


def features_of(scale: float) -> Callable[[Any], Any]:
    return lambda n: ({"x": np.float32(scale) * n, "left": n}, n)


def test_batches_are_held_against_the_schema_of_training() -> None:
    schema = open_input(lambda: records().map(lambda n: ({"x": np.float32(n)}, n)).batch(2)).schema()
    assert schema.features == (ArraySpec("x", "float32", ()),)
    told: list[str] = []
    enforcement = Enforcement(schema, "the eval input", on_unused=told.extend)
    opened = open_input(lambda: records().map(features_of(2)).batch(2), enforcement=enforcement)
    assert opened.read(0, 0, 1)[0].keys() == opened.read(0, 1, 2)[0].keys() == {"x"}
    assert told == ["left"]
    wrong = records().map(lambda n: ({"x": np.zeros(1 if n < 2 else 2)[0 if n < 2 else slice(None)]}, n)).batch(2)
    other = open_input(lambda: wrong, enforcement=Enforcement(schema, "the eval input"))
    with pytest.raises(InputError, match=r"batch 1 \(record 2 to record 3\) of input_fn .*feature 'x'"):
        other.read(0, 1, 2)


def test_cells_that_are_no_numbers_are_refused_where_they_are() -> None:
    def holes() -> Transformations:
        return records().map(lambda n: np.float32("nan") if n == 5 else np.float32(n)).batch(2)

    opened = open_input(holes, non_finite="error")
    opened.read(0, 1, 2)
    with pytest.raises(InputError, match=r"batch 2 \(record 4 to record 5\)"):
        opened.read(0, 2, 3)
    kept = open_input(holes, non_finite="keep")
    assert "row 1 of batch 2" in kept.first_non_finite_cell(0, 2, 3)
    assert kept.first_non_finite_cell(0, 1, 2) == ""
    with pytest.raises(InputError, match=r"non_finite is drop, .* use filter"):
        open_input(holes, non_finite="drop")


@pytest.mark.parametrize("records_asked", [(-1, 0, 1), (0, 0, 2), (0, 6, 7), (0, 1, 1), (0, -1, 0)])
def test_one_batch_at_a_time_is_read(records_asked: tuple[int, int, int]) -> None:
    opened = open_input(BY_NUMBER["map"])
    assert (opened.num_records, opened.window_records) == (6, 1)
    with pytest.raises(InputError, match="expected an epoch >= 0 and one of the 6 batches, got epoch"):
        opened.read(*RecordRange(*records_asked))


@pytest.mark.parametrize("pipeline_depth", [0, 1])
def test_the_first_batch_is_computed_to_plan_and_to_train_and_the_others_once(
    make: Callable[..., Any], pipeline_depth: int
) -> None:
    computed: list[int] = []

    def count(n: int) -> dict[str, int]:
        computed.append(int(n))
        return named(n)

    estimator = make(counts, pipeline_depth=pipeline_depth)
    estimator.train(lambda: records().map(count).batch(3))
    assert sorted(computed) == sorted([0, 1, 2, *range(NUM_RECORDS)])
    computed.clear()
    estimator.evaluate(lambda: records().map(count).batch(3))
    assert computed == list(range(NUM_RECORDS))
    computed.clear()
    assert len(list(estimator.predict(lambda: records().map(count).batch(3)))) == NUM_RECORDS
    assert computed == list(range(NUM_RECORDS))


def test_the_batch_that_was_looked_at_is_the_first_that_is_read() -> None:
    computed: list[int] = []
    opened = open_input(lambda: Dataset.range(4).map(lambda n: computed.append(n) or n).batch(2).repeat())
    assert isinstance(opened, SplittableInput)
    assert computed == []
    assert (opened.rows_per_record, opened.schema().features[0].dtype) == (2, "int64")
    assert [opened.read(0, 0, 1)[0].tolist() for _ in range(2)] == [[0, 1], [0, 1]]
    assert computed == [0, 1, 0, 1]
    again = open_input(lambda: Dataset.range(4).map(lambda n: n).batch(2).repeat())
    assert isinstance(again, SplittableInput)
    assert (again.rows_per_record, again.read(1, 1, 2)[0].tolist(), again.read(0, 0, 1)[0].tolist()) == (
        2,
        [2, 3],
        [0, 1],
    )
