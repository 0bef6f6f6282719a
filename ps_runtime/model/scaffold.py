"""Scaffold and Saver: the start of a session, and the checkpoints to keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from psflow.ps_runtime.errors import did_you_mean
from psflow.ps_runtime.specs.arguments import ArgumentFaults

if TYPE_CHECKING:
    from psflow.ps_runtime.model.session_start import InitialSession
    from psflow.ps_runtime.specs.run_config import RunConfig

OF_A_GRAPH = {
    "init_op": "give init_fn(scaffold, session), which may call session.load(name, value)",
    "init_feed_dict": "let init_fn read its values from a closure",
    "ready_op": "give ready_fn(session), which returns None once this replica may train, else the reason",
    "ready_for_local_init_op": "local_init_fn is called once the variables have their values",
    "local_init_op": "give local_init_fn(session)",
    "local_init_feed_dict": "let local_init_fn read its values from a closure",
    "summary_op": "psflow.summary is written every save_summary_steps of RunConfig",
    "copy_from_scaffold": "create a Scaffold with the functions of the other one",
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
    """The checkpoints to keep, instead of the settings in RunConfig.

    Parameters
    ----------
    max_to_keep : int or None
        Number of checkpoints to keep; None or 0: all.
    keep_checkpoint_every_n_hours : float
        One checkpoint per period of this length is kept forever.
    of_a_graph : object
        Other arguments of TensorFlow's Saver; must be None.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message; an ArgumentTypeError if an argument has the wrong
        type.
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
    """The start of a session. The Scaffold of the first call of model_fn in a mode is used.

    Parameters
    ----------
    init_fn : callable ``(scaffold, session)``, optional
        Called once, by the chief, after the variables have their initial values, including those of a warm start, and
        only if there is no checkpoint to restore. `session` is an `InitialSession`, whose ``load`` replaces values.
    local_init_fn : callable ``(session)``, optional
        Called in each replica, evaluation and prediction before its first step or batch, after the first call of
        model_fn. `session` is the session of hooks.
    ready_fn : callable ``(session)``, optional
        Returns None once training may begin in this replica, else a sentence with the reason. It is called repeatedly,
        for up to ``session_creation_timeout_secs`` of RunConfig. An evaluation or a prediction calls it once.
    saver : Saver, optional
        The checkpoints to keep, instead of the settings in RunConfig.
    of_a_graph : object
        Other arguments of TensorFlow's Scaffold; must be None.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message; an ArgumentTypeError if an argument has the wrong
        type.

    Notes
    -----
    A replica that is not ready holds its first batch. The others continue to train, but no checkpoint is made
    meanwhile.
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
    """Return the faults of arguments that only a graph has, and of unknown ones."""
    faults = ArgumentFaults(f"{kind}.")
    for name, value in given.items():
        if name not in instead:
            faults.add_type(name, f"an argument of {kind}: {', '.join(known)}{did_you_mean(name, known)}", value)
        elif value is not None:
            faults.add(f"{kind} does not take {name}: there is no graph; {instead[name]}")
    return faults
