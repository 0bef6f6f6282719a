"""Wraps the result of an input_fn so that inspecting the input does not consume it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from psflow.ps_runtime.errors import InputError


class CalledInput:
    """The result of an input_fn as an input_fn without arguments: each call reads it from its start.

    An iterator can be read only once, so the batches that were read are kept, until `read_to_the_end` says that the
    next reading is the last one.

    Notes
    -----
    Not thread-safe: one reading at a time.
    """

    def __init__(self, name: str, result: Any, input_fn: Callable[..., Any], *, takes_context: bool) -> None:
        self.__qualname__ = name
        self.input_fn = input_fn
        self.takes_context = takes_context
        self._result = result
        self._read: list[Any] = []
        self._remembers = True
        self._is_taken = False

    def __call__(self) -> Any:
        """Return the result, or an iterator over all of its batches."""
        return self._from_start() if isinstance(self._result, Iterator) else self._result

    def read_to_the_end(self) -> CalledInput:
        """Keep no further batch, as the next reading is the last one; return this."""
        self._remembers = False
        return self

    def _from_start(self) -> Iterator[Any]:
        if self._is_taken:
            raise InputError((f"input_fn {self.__qualname__} returned an iterator, which was read already",))
        self._is_taken = not self._remembers
        yield from tuple(self._read)
        for batch in self._result:
            if self._remembers:
                self._read.append(batch)
            yield batch
