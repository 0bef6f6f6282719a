"""Reports errors of the user's functions with their location."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any

from psflow.ps_runtime.data.called_input import CalledInput
from psflow.ps_runtime.errors import PsflowError, UsageError
from psflow.ps_runtime.redaction import shown_file


@contextmanager
def user_code(function: Callable[..., Any], error: type[UsageError], when: str) -> Iterator[None]:
    """Turn any exception of `function` in the block into an `error` of one sentence; errors of psflow pass."""
    try:
        yield
    except PsflowError:
        raise
    except Exception as cause:
        raise user_error(function, error, when, cause) from cause


def user_error(function: Callable[..., Any], error: type[UsageError], when: str, cause: Exception) -> UsageError:
    """Return the `error` for an exception of `function`, as in `user_code`."""
    message = f": {cause}" if str(cause) else ""
    return error((f"{_name(function)} raised {type(cause).__name__} {when}{_place(function, cause)}{message}",))


def misfit(function: Callable[..., Any], num_arguments: int) -> str:
    """Return a sentence if a function of the user does not take that many arguments, else an empty text."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some callables of extension modules have no signature
        return ""
    try:
        signature.bind(*[None] * num_arguments)
    except TypeError:
        number = "1 argument" if num_arguments == 1 else f"{num_arguments} arguments"
        return f"{_name(function)}{_definition(function)} takes {signature}, but gets {number}"
    return ""


def _name(function: Callable[..., Any]) -> str:
    plain = _unwrapped(function)
    qualified = getattr(plain, "__qualname__", type(plain).__qualname__)
    return f"{getattr(plain, '__module__', type(plain).__module__)}:{qualified}"


def _place(function: Callable[..., Any], cause: Exception) -> str:
    """Return the innermost line in the function's file, or the innermost of all if that file is not involved.

    Empty if the only line is the call by psflow.
    """
    code = _code(function)
    frames = traceback.extract_tb(cause.__traceback__)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    if not own and len(frames) == 1:
        return ""
    frame = (own or frames)[-1]
    return f" at {shown_file(frame.filename)}:{frame.lineno}"


def _definition(function: Callable[..., Any]) -> str:
    code = _code(function)
    return "" if code is None else f" at {shown_file(code.co_filename)}:{code.co_firstlineno}"


def _code(function: Callable[..., Any]) -> CodeType | None:
    """Return the code of the function; None if it is not a Python function."""
    plain = _unwrapped(function)
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _unwrapped(function: Callable[..., Any]) -> Any:
    while isinstance(function, partial | CalledInput):
        function = function.func if isinstance(function, partial) else function.input_fn
    return function
