"""What a model_fn says of the begin of a session, and of the checkpoints that are kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psflow.ps_runtime.data.user_code import user_code
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import ModelFnError, ModelFnTypeError, UsageError, WaitTimeoutError, did_you_mean
from psflow.ps_runtime.model.hooks.base import Fetches, pick
from psflow.ps_runtime.numeric import first_non_finite
from psflow.ps_runtime.specs.arguments import ArgumentFaults

if TYPE_CHECKING:
    from psflow.ps_runtime.specs.run_config import RunConfig

OF_A_GRAPH = {
    "init_op": "give init_fn(scaffold, session), which may call session.load(name, value)",
    "init_feed_dict": "let init_fn have its values from a closure",
    "ready_op": "give ready_fn(session), which returns None once this replica may train, else why not",
    "ready_for_local_init_op": "local_init_fn is called once the variables have their values",
    "local_init_op": "give local_init_fn(session)",
    "local_init_feed_dict": "let local_init_fn have its values from a closure",
    "summary_op": "what psflow.summary takes is written every save_summary_steps of RunConfig",
    "copy_from_scaffold": "make a Scaffold with the functions of the other one",
}
OF_A_GRAPH_SAVER = (
    "var_list",
    "reshape",
    "sharded",
    "name",
    "restore_sequentially",
    "saver_def",
    "builder",
    "defer_build",
    "allow_empty",
    "write_version",
    "pad_step_number",
    "save_relative_paths",
    "filename",
)


@final
class Saver:
    """Which checkpoints are kept, in place of what RunConfig says of it.

    Parameters
    ----------
    max_to_keep : int or None
        How many checkpoints stay; None or 0: all.
    keep_checkpoint_every_n_hours : float
        One checkpoint of each such span stays for good.
    of_a_graph : object
        Other arguments of a Saver of TensorFlow; each is refused unless it is None.

    Raises
    ------
    UsageError
        All faults in one message; an ArgumentTypeError if one of them is a wrong type.
    """

    def __init__(
        self, *, max_to_keep: int | None = 5, keep_checkpoint_every_n_hours: float = 10000.0, **of_a_graph: Any
    ) -> None:
        why = "a checkpoint of psflow holds all variables, whole; leave it out"
        faults = _refused(
            "Saver", dict.fromkeys(OF_A_GRAPH_SAVER, why), of_a_graph, ("max_to_keep", "keep_checkpoint_every_n_hours")
        )
        if max_to_keep is not None:
            faults.whole("max_to_keep", max_to_keep, at_least=0)
        faults.number("keep_checkpoint_every_n_hours", keep_checkpoint_every_n_hours, above_zero=True)
        faults.raise_any()
        self.max_to_keep = max_to_keep
        self.keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours

    def applied_to(self, config: RunConfig) -> RunConfig:
        """Return `config` with these settings."""
        return config.replace(
            keep_checkpoint_max=self.max_to_keep, keep_checkpoint_every_n_hours=self.keep_checkpoint_every_n_hours
        )


@final
class Scaffold:
    """How a session begins. That of the first call of model_fn in a mode counts.

    Parameters
    ----------
    init_fn : callable ``(scaffold, session)``, optional
        Called once, by the chief, after the variables have their first values, those of a warm start among them, and
        only where there is no checkpoint to restore. `session` is an `InitialSession`, whose ``load`` replaces values.
    local_init_fn : callable ``(session)``, optional
        Called in each replica, evaluation and prediction before its first step or batch, after the first call of
        model_fn. `session` is that of hooks.
    ready_fn : callable ``(session)``, optional
        Returns None once training may begin in this replica, else a sentence that says why not. It is called again
        and again, up to ``session_creation_timeout_secs`` of RunConfig. An evaluation or a prediction asks once.
    saver : Saver, optional
        Which checkpoints are kept, in place of what RunConfig says of it.
    of_a_graph : object
        Other arguments of a Scaffold of TensorFlow; each is refused unless it is None.

    Raises
    ------
    UsageError
        All faults in one message; an ArgumentTypeError if one of them is a wrong type.

    Notes
    -----
    A replica that is not ready holds its first batch. The others train on, but no checkpoint is made meanwhile.
    """

    def __init__(
        self,
        *,
        init_fn: Callable[[Scaffold, InitialSession], object] | None = None,
        local_init_fn: Callable[[Any], object] | None = None,
        ready_fn: Callable[[Any], str | None] | None = None,
        saver: Saver | None = None,
        **of_a_graph: Any,
    ) -> None:
        faults = _refused("Scaffold", OF_A_GRAPH, of_a_graph, ("init_fn", "local_init_fn", "ready_fn", "saver"))
        for name, given in (("init_fn", init_fn), ("local_init_fn", local_init_fn), ("ready_fn", ready_fn)):
            if given is not None:
                faults.callable(name, given)
        if saver is not None and not isinstance(saver, Saver):
            faults.add_type("saver", "a psflow.Saver or None", saver)
        faults.raise_any()
        self.init_fn = init_fn
        self.local_init_fn = local_init_fn
        self.ready_fn = ready_fn
        self.saver = saver


def _refused(kind: str, instead: Mapping[str, str], given: Mapping[str, Any], known: Sequence[str]) -> ArgumentFaults:
    """Return the faults of arguments that only a graph has, and of those that nobody knows."""
    faults = ArgumentFaults(f"{kind}.")
    for name, value in given.items():
        if name not in instead:
            faults.add_type(name, f"an argument of {kind}: {', '.join(known)}{did_you_mean(name, known)}", value)
        elif value is not None:
            faults.add(f"{kind} takes no {name}: there is no graph; {instead[name]}")
    return faults


PAUSE_SECS = 0.25
"""Between two calls of `ready_fn`."""


@final
class InitialSession:
    """The first values of a job, as `init_fn` sees them: it may replace those of variables."""

    global_step = 0

    def __init__(self, values: MutableMapping[str, NDArray[Any]], table_names: Sequence[str]) -> None:
        self._values = values
        self._table_names = table_names

    def run(self, fetches: Fetches) -> Any:
        """Return variables, or ``global_step``, in the structure of `fetches`; UsageError for an unknown name."""
        known = {name: value.copy() for name, value in self._values.items()}
        return pick(fetches, {**known, "global_step": self.global_step}, self._table_names)

    def load(self, name: str, value: ArrayLike) -> None:
        """Have a variable begin with `value`.

        Raises
        ------
        ModelFnError
            If there is no such variable, or `value` has another shape, a dtype that does not fit, or a number that is
            not finite.
        """
        known = self._values.get(name)
        if known is None:
            is_table = " is a table, whose rows begin as its initializer says"
            reason = is_table if name in self._table_names else f" is no variable{did_you_mean(name, self._values)}"
            raise ModelFnError((f"init_fn: {name!r}{reason}",))
        given = np.asarray(value)
        if given.shape != known.shape or not np.can_cast(given.dtype, known.dtype, "same_kind"):
            expected, got = (f"{array.dtype}{list(array.shape)}" for array in (known, given))
            raise ModelFnError((f"init_fn: variable {name!r} is {expected}, got {got}",))
        with np.errstate(over="ignore"):  # what is too large is infinite, and refused
            loaded = given.astype(known.dtype, order="C")
        if loaded.dtype.kind == "f" and (found := first_non_finite(loaded)) is not None:
            raise ModelFnError((f"init_fn: variable {name!r} got {found[1]}, expected finite numbers",))
        if loaded.dtype.kind in "iu" and (loaded != given).any():
            wrong = given[loaded != given].flat[0]
            raise ModelFnError((f"init_fn: variable {name!r} got {wrong}, which is no {loaded.dtype}",))
        self._values[name] = loaded


def first_values(
    scaffold: Scaffold | None, values: Mapping[str, NDArray[Any]], table_names: Sequence[str]
) -> Mapping[str, NDArray[Any]]:
    """Return what the variables of a new job begin with: `values`, and what `init_fn` loads in their place.

    Raises
    ------
    ModelFnError
        If `init_fn` raises, or loads what does not fit.
    """
    if scaffold is None or scaffold.init_fn is None:
        return values
    replaced = dict(values)
    with user_code(scaffold.init_fn, ModelFnError, "as init_fn of a Scaffold"):
        scaffold.init_fn(scaffold, InitialSession(replaced, table_names))
    return replaced


def check_ready(scaffold: Scaffold | None, session: Any) -> bool:
    """Prepare an evaluation or a prediction; return whether there was something to prepare.

    Raises
    ------
    UsageError
        If `ready_fn` says that it is not ready; a ModelFnError if one of the functions raises.
    """
    if scaffold is None:
        return False
    _prepare(scaffold, session)
    reason = _why_not_ready(scaffold, session)
    if reason is not None:
        raise UsageError((f"the model is not ready, as ready_fn of its Scaffold says: {reason}",))
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
        If it does not become ready in time; it says what `ready_fn` said last.
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
        said = "None once the session is ready, else a sentence that says why not"
        raise ModelFnTypeError((f"ready_fn of a Scaffold should return {said}; got {reason!r}",))
    return reason
