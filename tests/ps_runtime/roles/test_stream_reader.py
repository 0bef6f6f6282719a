"""The one reader of a generator: as far as it is asked, a few batches ahead, and gone when it is told to be."""

from __future__ import annotations

import errno
import threading
from queue import SimpleQueue
from types import SimpleNamespace

import numpy as np
import pytest

from psflow.ps_runtime.data.batch_codec import decode_batch
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.roles.streams import READ_AHEAD_BATCHES, StreamReader
from psflow.ps_runtime.specs.roles import RoleId
from psflow.ps_runtime.specs.variables import ModelSpec

WAIT_SECS = 200


class JobRequestsStub:
    """Writes down what the reader tells."""

    def __init__(self):
        self.news = SimpleQueue()

    def batch_read(self, index, batch):
        self.news.put((index, decode_batch(batch)[0].tolist()))

    def stream_ended(self, num_batches):
        self.news.put(("end", num_batches))

    def stream_failed(self, error):
        self.news.put(("failed", error))

    def hear(self, count):
        return [self.news.get(timeout=WAIT_SECS) for _ in range(count)]


@pytest.fixture
def start():
    readers = []

    def start_reader(input_fn, schema=None, role=None):
        model = ModelSpec((), (), schema=schema)
        job = SimpleNamespace(train_spec=TrainSpec(input_fn), params={}, config=None, model=model)
        readers.append(StreamReader(job, lambda event: event(), role))
        readers[-1].job_requests = JobRequestsStub()
        return readers[-1]

    yield start_reader
    for reader in readers:
        reader.close()


def numbers(count):
    return lambda: ((np.array([n]), None) for n in range(count))


def test_reads_a_few_batches_ahead_and_no_further(start):
    asked = SimpleQueue()

    def counting():
        for n in range(100):
            asked.put(n)
            yield np.array([n]), None

    reader = start(counting)
    assert asked.empty()
    reader.want(0)
    assert reader.job_requests.hear(READ_AHEAD_BATCHES + 1) == [(n, [n]) for n in range(READ_AHEAD_BATCHES + 1)]
    reader.close()
    assert reader.job_requests.news.empty()
    assert asked.qsize() <= READ_AHEAD_BATCHES + 2


def test_reads_on_when_more_is_wanted_and_tells_the_end(start):
    reader = start(numbers(7))
    reader.want(0)
    reader.job_requests.hear(5)
    reader.want(3)
    assert reader.job_requests.hear(3) == [(5, [5]), (6, [6]), ("end", 7)]


@pytest.mark.parametrize(("role", "place"), [(None, ""), (RoleId.parse("ps-0"), " on ps-0")])
def test_tells_the_words_of_a_generator_that_fails_and_in_which_process(start, role, place):
    def failing():
        yield np.array([0]), None
        raise ZeroDivisionError("nothing left")

    reader = start(failing, role=role)
    reader.want(0)
    kind, error = reader.job_requests.hear(2)[1]
    where = f"tests/ps_runtime/roles/test_stream_reader.py:{failing.__code__.co_firstlineno + 2}"
    said = f"{__name__}:{failing.__qualname__} raised ZeroDivisionError in train mode{place} at {where}: nothing left"
    assert (kind, error) == ("failed", said)


@pytest.mark.parametrize("num_faults", [1, 2])
def test_a_file_system_that_is_away_once_ends_nothing(start, caplog, num_faults):
    faults = iter(range(num_faults))

    def failing():
        for n in range(3):
            if n == 1 and next(faults, None) is not None:
                raise OSError(errno.EIO, "the mount is away")
            yield np.array([n]), None

    reader = start(failing, role=RoleId.parse("ps-0"))
    reader.want(0)
    kinds = [kind for kind, _ in reader.job_requests.hear(4 if num_faults == 1 else 2)]
    assert kinds == ([0, 1, 2, "end"] if num_faults == 1 else [0, "failed"])
    [said] = caplog.messages
    assert "raised OSError in train mode" in said
    assert "the mount is away; reading the input again from its start" in said


@pytest.mark.parametrize(
    ("again", "why"),
    [
        ([], "it ended after 0 batches, and 2 were used"),
        ([0], "it ended after 1 batches, and 2 were used"),
        ([2, 3, 4], "its first 2 batches differ now"),
    ],
)
def test_a_stream_that_is_not_the_same_again_ends_the_job_with_its_first_error(start, again, why):
    readings = iter([[0, 1, OSError(errno.EIO, "the mount is away")], again])

    def failing():
        for n in next(readings):
            if isinstance(n, OSError):
                raise n
            yield np.array([n]), None

    reader = start(failing, role=RoleId.parse("ps-0"))
    reader.want(0)
    (first, _), (second, _), (kind, error) = reader.job_requests.hear(3)
    assert (first, second, kind) == (0, 1, "failed")
    assert f"the mount is away; when the input was read again from its start, {why}" in error


def test_an_error_of_psflow_is_told_as_it_is(start):
    def failing():
        yield np.array([0]), None
        raise InputError(("row 3",))

    reader = start(failing)
    reader.want(0)
    assert reader.job_requests.hear(2)[1] == ("failed", "row 3")


def test_tells_of_a_batch_that_is_none(start):
    reader = start(lambda: iter([(np.array([0]), None), 5]))
    reader.want(0)
    kind, error = reader.job_requests.hear(2)[1]
    assert kind == "failed"
    assert "batch 1 of input_fn" in error
    assert "expected a tuple (features, labels), got int" in error


def test_closes_a_generator_that_waits_for_nobody(start):
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield np.array([0]), None
        finally:
            closed.set()

    reader = start(endless)
    reader.want(0)
    reader.job_requests.hear(1)
    reader.close()
    assert closed.wait(WAIT_SECS)


def test_leaves_a_generator_that_blocks_for_ever(start):
    reached, never = threading.Event(), threading.Event()

    def blocking():
        yield np.array([0]), None
        reached.set()
        never.wait()
        yield np.array([1]), None

    reader = start(blocking)
    reader.want(0)
    assert reached.wait(WAIT_SECS)
    reader.close()
    assert reader.job_requests.hear(1) == [(0, [0])]
    never.set()
    reader._thread.join(WAIT_SECS)
    assert reader.job_requests.news.empty()


def test_a_reader_that_nobody_asked_closes(start):
    reader = start(numbers(3))
    reader.close()
    assert reader.job_requests.news.empty()
