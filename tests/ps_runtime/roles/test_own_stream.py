"""A stream that a replica reads for itself: from where it stands, to its end, and with the user's errors."""

from __future__ import annotations

import numpy as np
import pytest

from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.roles.streams import BatchReader, PrivateStream
from psflow.ps_runtime.specs.input import RecordRange


class Client:
    """Writes down the ends that it is told of."""

    def __init__(self):
        self.ends = []

    def end_input(self, num_batches):
        self.ends.append(num_batches)


def numbers(count):
    return ((n, None) for n in range(count))


def at(index):
    return RecordRange(0, index, index + 1)


def test_the_first_batch_may_be_looked_at_and_a_ticket_may_come_again():
    client = Client()
    stream = PrivateStream(numbers(3), client, numbers)
    assert [stream.first(), stream.read(at(0)), stream.read(at(1)), stream.read(at(1)), stream.read(at(2))] == [
        (0, None),
        (0, None),
        (1, None),
        (1, None),
        (2, None),
    ]
    assert client.ends == []


def test_batches_that_were_used_before_are_dropped():
    assert PrivateStream(numbers(9), Client(), numbers).read(at(7)) == (7, None)


@pytest.mark.parametrize(("count", "index"), [(0, 0), (2, 2), (2, 5)])
def test_ps_0_is_told_how_many_there_were(count, index):
    client = Client()
    assert PrivateStream(numbers(count), client, numbers).read(at(index)) is None
    assert client.ends == [count]


def failing(error):
    yield 0, None
    raise error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ZeroDivisionError("boom"),
            r":failing raised ZeroDivisionError in train mode at \S*test_own_stream.py:\d+: boom$",
        ),
        (InputError(("row 3",)), "^row 3$"),
    ],
)
def test_what_the_generator_raises_is_an_error_of_the_input(error, words):
    stream = PrivateStream(failing(error), Client(), failing)
    stream.read(at(0))
    with pytest.raises(InputError, match=words):
        stream.read(at(1))


def test_a_cell_that_is_not_finite_is_found_in_its_batch():
    stream = PrivateStream(numbers(0), Client(), numbers)
    batch = ({"x": np.array([1.0, np.nan])}, None)
    assert "x" in stream.first_non_finite_cell(at(4), batch)
    assert "batch 4" in stream.first_non_finite_cell(at(4), batch)


def test_each_replica_has_orders_of_its_own_of_the_same_records():
    data = Dataset({"x": np.arange(50)}).shuffle(50, seed=3).batch(50).repeat()
    orders = [
        BatchReader(data, Client(), replica).read(RecordRange(epoch, 0, 50))[0]["x"].tolist()
        for replica in range(3)
        for epoch in range(2)
    ]
    assert len({tuple(order) for order in orders}) == 6
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(50))}
    assert orders[0] == data.read(0, 0, 50)[0]["x"].tolist()  # the chief's are those of one replica alone
