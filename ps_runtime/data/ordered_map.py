"""Applies a function to elements in threads, and returns the results in the order of the elements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Never

CALLS_PER_THREAD = 2
"""Results that are being computed or wait to be taken; bounds the memory."""


def ordered_map(function: Callable[[Any], Any], elements: Iterable[Any], num_threads: int) -> Iterator[Any]:
    """Yield ``function(element)`` for each element, in their order.

    With one thread, the caller's thread calls the function, and reads no element ahead.

    Raises
    ------
    Exception
        Any error of `function` or `elements`, after the results of all elements before it.

    Notes
    -----
    The threads end with the iterator: when it is exhausted, raises or is closed, which waits for running calls.
    """
    if num_threads == 1:
        yield from map(function, elements)
        return
    pending: deque[Future[Any]] = deque()
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="psflow-map")
    try:
        for call in _calls(function, elements):
            pending.append(pool.submit(call))
            if len(pending) == CALLS_PER_THREAD * num_threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _calls(function: Callable[[Any], Any], elements: Iterable[Any]) -> Iterator[Callable[[], Any]]:
    """Yield a call for each element; an error of `elements` is the last one."""
    try:
        for element in elements:
            yield partial(function, element)
    except Exception as error:
        yield partial(_raise, error)


def _raise(error: Exception) -> Never:
    raise error
