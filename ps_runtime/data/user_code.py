"""Reports errors of the user's functions with their location."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from psflow.ps_runtime.data.called_input import CalledInput
from psflow.ps_runtime.errors import PsflowError, UsageError
from psflow.ps_runtime.redaction import shown_file
from psflow.ps_runtime.shipping.own_modules import ENGINE, is_installed


@contextmanager
def user_code(function: Callable[..., Any], error: type[UsageError], when: str) -> Iterator[None]:
    """Turn any exception of `function` in the block into an `error` of one sentence; errors of psflow pass."""
    try:
        yield
    except PsflowError:
        raise
    except Exception as cause:
        raise user_error(function, error, when, cause) from cause


def user_error(
    function: Callable[..., Any], error: type[UsageError], when: str, cause: Exception, *, in_any_file: bool = False
) -> UsageError:
    """Return the `error` for an exception of `function`, as in `user_code`.

    `in_any_file` prefers the innermost line of all files of the user to that of the function's file.
    """
    message = f": {cause}" if str(cause) else ""
    return error(
        (f"{_name(function)} raised {type(cause).__name__} {when}{_place(function, cause, in_any_file)}{message}",)
    )


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


def _place(function: Callable[..., Any], cause: Exception, in_any_file: bool) -> str:
    """Return the innermost line of the function's file, else of the user's files, else of all.

    Empty if the only line is the call by psflow.
    """
    code = _code(function)
    lines = list(traceback.walk_tb(cause.__traceback__))
    own = [(frame, line) for frame, line in lines if code is not None and _file(frame) == code.co_filename]
    of_user = [(frame, line) for frame, line in lines if _is_of_user(frame)]
    if not own and not of_user and len(lines) == 1:
        return ""
    frame, line = ((of_user or own if in_any_file else own or of_user) or lines)[-1]
    return f" at {shown_file(_file(frame))}:{line}"


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _is_of_user(frame: FrameType) -> bool:
    """Return whether a frame runs code that is neither psflow's nor installed."""
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package != ENGINE and not is_installed(Path(_file(frame)))


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
