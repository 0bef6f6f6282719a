"""Starts a session: initial values, and readiness of a replica, as the Scaffold of its model_fn defines them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psflow.ps_runtime.data.user_code import user_code
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import ModelFnError, ModelFnTypeError, UsageError, WaitTimeoutError, did_you_mean
from psflow.ps_runtime.model.hooks.base import Fetches, pick
from psflow.ps_runtime.model.scaffold import Scaffold
from psflow.ps_runtime.numeric import first_non_finite

PAUSE_SECS = 0.25
"""Seconds between two calls of `ready_fn`."""


@final
class InitialSession:
    """The initial values of a job, for `init_fn`: it may replace those of variables."""

    global_step = 0

    def __init__(self, values: MutableMapping[str, NDArray[Any]], table_names: Sequence[str]) -> None:
        self._values = values
        self._table_names = table_names

    def run(self, fetches: Fetches) -> Any:
        """Return variables, or ``global_step``, in the structure of `fetches`; UsageError for an unknown name."""
        known = {name: value.copy() for name, value in self._values.items()}
        return pick(fetches, {**known, "global_step": self.global_step}, self._table_names)

    def load(self, name: str, value: ArrayLike) -> None:
        """Set the initial value of a variable.

        Raises ModelFnError if there is no such variable, or `value` has another shape, an unsuitable dtype, or a
        non-finite number.
        """
        known = self._values.get(name)
        if known is None:
            is_table = " is a table, whose rows start with the values of its initializer"
            reason = is_table if name in self._table_names else f" is not a variable{did_you_mean(name, self._values)}"
            raise ModelFnError((f"init_fn: {name!r}{reason}",))
        given = np.asarray(value)
        if given.shape != known.shape or not np.can_cast(given.dtype, known.dtype, "same_kind"):
            expected, got = (f"{array.dtype}{list(array.shape)}" for array in (known, given))
            raise ModelFnError((f"init_fn: variable {name!r} is {expected}, got {got}",))
        with np.errstate(over="ignore"):  # values that are too large become infinite, and are refused
            loaded = given.astype(known.dtype, order="C")
        if loaded.dtype.kind == "f" and (found := first_non_finite(loaded)) is not None:
            raise ModelFnError((f"init_fn: variable {name!r} got {found[1]}, expected finite numbers",))
        if loaded.dtype.kind in "iu" and (loaded != given).any():
            wrong = given[loaded != given].flat[0]
            raise ModelFnError((f"init_fn: variable {name!r} got {wrong}, which {loaded.dtype} cannot hold",))
        self._values[name] = loaded


def first_values(
    scaffold: Scaffold | None, values: Mapping[str, NDArray[Any]], table_names: Sequence[str]
) -> Mapping[str, NDArray[Any]]:
    """Return the initial values of the variables of a new job: `values`, or those that `init_fn` loads instead.

    Raises ModelFnError if `init_fn` raises, or loads unsuitable values.
    """
    if scaffold is None or scaffold.init_fn is None:
        return values
    replaced = dict(values)
    with user_code(scaffold.init_fn, ModelFnError, "as init_fn of a Scaffold"):
        scaffold.init_fn(scaffold, InitialSession(replaced, table_names))
    return replaced


def check_ready(scaffold: Scaffold | None, session: Any) -> bool:
    """Prepare an evaluation or a prediction; return whether there was anything to prepare.

    Raises UsageError if `ready_fn` reports that the model is not ready; a ModelFnError if one of the functions raises.
    """
    if scaffold is None:
        return False
    _prepare(scaffold, session)
    reason = _why_not_ready(scaffold, session)
    if reason is not None:
        raise UsageError((f"the model is not ready; ready_fn of its Scaffold reports: {reason}",))
    return scaffold.local_init_fn is not None


def await_ready(
    scaffold: Scaffold | None,
    session: Any,
    role: str,
    deadline: Deadline,
    check: Callable[[], None],
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Prepare the session of a replica, and wait until it is ready to train. Blocks.

    Raises
    ------
    WaitTimeoutError
        If it does not become ready in time; the message quotes the last answer of `ready_fn`.
    ModelFnError
        If one of the functions raises.
    """
    if scaffold is None:
        return
    _prepare(scaffold, session)
    while (reason := _why_not_ready(scaffold, session)) is not None:
        if deadline.has_passed:
            raise WaitTimeoutError(role, "become ready", deadline.timeout_secs, f"ready_fn says: {reason}")
        check()
        pause(min(PAUSE_SECS, deadline.remaining_secs))


def _prepare(scaffold: Scaffold, session: Any) -> None:
    if scaffold.local_init_fn is not None:
        with user_code(scaffold.local_init_fn, ModelFnError, "as local_init_fn of a Scaffold"):
            scaffold.local_init_fn(session)


def _why_not_ready(scaffold: Scaffold, session: Any) -> str | None:
    if scaffold.ready_fn is None:
        return None
    with user_code(scaffold.ready_fn, ModelFnError, "as ready_fn of a Scaffold"):
        reason = scaffold.ready_fn(session)
    if reason is not None and (not isinstance(reason, str) or not reason):
        said = "None once the session is ready, else a sentence with the reason"
        raise ModelFnTypeError((f"ready_fn of a Scaffold should return {said}; got {reason!r}",))
    return reason
