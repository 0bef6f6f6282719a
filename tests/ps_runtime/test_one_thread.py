from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from psflow.ps_runtime.one_thread import one_thread


def num_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    with threadpool_limits(limits=2):
        yield


def test_threads_come_back_with_the_last_of_overlapping_blocks() -> None:
    first, second = one_thread(), one_thread()
    assert num_threads() == {2}
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert num_threads() == {1}
    second.__exit__(None, None, None)
    assert num_threads() == {2}


def test_threads_come_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="seven"), one_thread():
        raise ValueError("seven")
    assert num_threads() == {2}


def test_threads_given_to_a_library_meanwhile_are_taken_by_the_next_block() -> None:
    with one_thread(), threadpool_limits(limits=2), one_thread():
        assert num_threads() == {1}
    assert num_threads() == {2}
