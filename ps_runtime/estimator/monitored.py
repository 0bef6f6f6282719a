"""Training step by step, in a loop of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.local import LocalJob, open_local
from psflow.ps_runtime.model.hooks import Fetches, SessionRunHook, as_hooks
from psflow.ps_runtime.model.listeners import CheckpointSaverListener
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.roles.session import MonitoredSession
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.session_creator import ChiefSessionCreator, SessionCreator, WorkerSessionCreator

__all__ = ["MonitoredTrainingSession"]


class MonitoredTrainingSession:
    """Trains an Estimator in this process, one step for each `run`.

    To enter it restores the latest checkpoint, or initialises the variables, saves them, and tells the hooks. To leave
    it ends training: hooks see `end`, unless something was raised, and the final checkpoint is committed. After an
    exception the next session goes on from the latest checkpoint.

    Parameters
    ----------
    estimator : Estimator
        Its model, its configuration and its model_dir.
    input_fn : callable
        Returns a Dataset, or yields batches ``(features, labels)``.
    hooks : sequence of SessionRunHook, optional
        Run around each step, in this order, before those of model_fn.
    max_steps : int, optional
        The last global_step; None: until the input ends, or the loop is left.
    saving_listeners : sequence of CheckpointSaverListener, optional
        Called before and after each checkpoint.
    non_finite : {"error", "drop", "keep"}
        What becomes of rows with a blank, NaN or infinite cell; see TrainSpec.
    session_creator : ChiefSessionCreator or WorkerSessionCreator, optional
        How the session begins, as `WorkerContext.session_creator` returns it. Default: as that of a chief.

    Raises
    ------
    UsageError
        Whatever is wrong with model_fn, input or model_dir, or if TF_CONFIG has a cluster; nothing has been started or
        written then.

    Notes
    -----
    Not thread-safe. BLAS has one thread inside the ``with`` block. `train_and_evaluate` trains on a cluster, where each
    replica runs such a loop of its own.

    Examples
    --------
    ::

        with MonitoredTrainingSession(estimator, input_fn, hooks=[StopAtStepHook(last_step=1000)]) as session:
            while not session.should_stop():
                loss, global_step = session.run(["loss", "global_step"])
    """

    def __init__(
        self,
        estimator: Estimator,
        input_fn: Callable[..., Any],
        hooks: Sequence[SessionRunHook] | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[CheckpointSaverListener] | None = None,
        non_finite: NonFinite = "error",
        session_creator: SessionCreator | None = None,
    ) -> None:
        faults = ArgumentFaults("MonitoredTrainingSession: ")
        if not isinstance(estimator, Estimator):
            faults.add_type("estimator", "an Estimator", estimator)
        elif session_creator is not None:
            _check_creator(session_creator, estimator.model_dir, faults)
        faults.raise_any()
        spec = TrainSpec(
            input_fn,
            max_steps,
            as_hooks("hooks", hooks),
            () if saving_listeners is None else saving_listeners,
            non_finite,
        )
        self._attempt = Attempt(estimator, spec, None, reads_again=True)
        self._stack = ExitStack()
        self._local: LocalJob | None = None

    def __enter__(self) -> Self:
        """Open the job, and tell the hooks. Blocks."""
        if self._local is not None:
            raise UsageError(("this MonitoredTrainingSession is entered already; leave it first, or make another one",))
        with ExitStack() as stack:
            attempt = stack.enter_context(self._attempt)
            stack.callback(self._close)
            local = self._local = stack.enter_context(open_local(attempt.job(), attempt.log_event, attempt.check))
            stack.push(lambda kind, error, trace: None if kind else _finish(local))
            stack.enter_context(local.chief.session)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tell the hooks of the end, and wait for the final checkpoint; after an exception do neither. Blocks."""
        self._stack.__exit__(kind, error, trace)

    @property
    def global_step(self) -> int:
        """Updates so far."""
        return self._session.step_session.global_step

    def should_stop(self) -> bool:
        """Whether there is no further step: `max_steps` or the input has ended, or somebody asked to stop."""
        return self._session.should_stop()

    def request_stop(self, reason: str = "its session was asked to stop") -> None:
        """Make no further step."""
        self._session.request_stop(reason)

    def run(self, fetches: Fetches = "loss") -> Any:
        """Make one step; return what is fetched of it, in the structure of `fetches`. Blocks.

        Parameters
        ----------
        fetches : str, or sequence or mapping of them, or None
            ``loss``, ``global_step``, keys of predictions, metrics or summaries, names of variables.

        Raises
        ------
        UsageError
            If a name is unknown, the session is not entered, or should stop.
        NanLossError, NanGradientError
            If the step computed something that is not finite, unless a NanTensorHook asks to stop instead.
        """
        return self._session.run(fetches)

    @property
    def _session(self) -> MonitoredSession:
        if self._local is None:
            raise UsageError(("this MonitoredTrainingSession is not entered; use it inside `with session:`",))
        return self._local.chief.session

    def _close(self) -> None:
        self._local = None


def _check_creator(given: SessionCreator, model_dir: str, faults: ArgumentFaults) -> None:
    match given:
        case ChiefSessionCreator():
            if given.checkpoint_dir not in (None, model_dir):
                faults.add(
                    f"MonitoredTrainingSession: session_creator has checkpoint_dir {given.checkpoint_dir!r}, and the "
                    f"Estimator has model_dir {model_dir!r}, where its checkpoints are; give both the same"
                )
        case WorkerSessionCreator():
            faults.add(
                "MonitoredTrainingSession: session_creator is that of a worker, which trains with a chief; call "
                "train_and_evaluate, which opens a session in each replica"
            )
        case _:
            faults.add_type("session_creator", "what session_creator() of a worker context returns, or None", given)


def _finish(local: LocalJob) -> None:
    local.finish()
