"""Training step by step, in a loop of the user."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Self, assert_never

from psflow.ps_runtime.data.batch_check import Batch
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.local import open_local
from psflow.ps_runtime.estimator.manual_cluster import run_manual_role
from psflow.ps_runtime.estimator.recording import recorded, requested_run
from psflow.ps_runtime.model.fed_input import FedInput
from psflow.ps_runtime.model.hooks.base import CheckpointSaverListener, Fetches, SessionRunHook, as_hooks
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.numeric import is_number
from psflow.ps_runtime.roles.session import TRAIN_OP, MonitoredSession
from psflow.ps_runtime.roles.session_handoff import BREAKS, NextSession, SessionHandoff
from psflow.ps_runtime.signals import sigterm_leaves
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.cluster_task import ClusterTask
from psflow.ps_runtime.specs.run_config import RunConfig, absolute
from psflow.ps_runtime.specs.worker_context import (
    ChiefSessionCreator,
    SessionCreator,
    WorkerSessionCreator,
    get_current_worker_context,
    within,
)

logger = logging.getLogger(__name__)


class _Ended(StopIteration):
    """Leaves the loop and the ``with`` block of a session in which no further step is left."""


class MonitoredTrainingSession:
    """Trains an Estimator, one step of this process for each `run`.

    Entering it restores the latest checkpoint, or initialises the variables and saves them, and calls the hooks.
    Leaving it ends training: hooks see `end`, unless an exception was raised, and the final checkpoint is committed.
    After an exception the next session continues from the latest checkpoint.

    Where the RunConfig has a cluster, the chief and each worker have a session of their own, of one job, and each ps
    calls `Server.join`. Entering waits for all of them. When a replica leaves its session, the others continue to
    train: a loop with a fixed number of runs makes them all. Once the chief has left, `should_stop` is true in the
    workers, and training ends when all of them have left. It ends at once where the chief leaves because a hook or
    `request_stop` has asked for it. Leaving waits until the job has ended, in each of them.

    Parameters
    ----------
    estimator : Estimator
        With its model, its configuration and its model_dir.
    input_fn : callable, or pair of placeholders
        Returns a Dataset, or yields batches ``(features, labels)``. The pair ``(features, labels)`` of a `placeholder`,
        or of a mapping of str to placeholder, each: the loop of every replica feeds its own batches to `run`.
    hooks : sequence of SessionRunHook, optional
        Run around each step, in this order, before those of model_fn.
    max_steps : int, optional
        The last global_step; None: until the input ends, or the loop is left.
    saving_listeners : sequence of CheckpointSaverListener, optional
        Called before and after each checkpoint.
    non_finite : {"error", "drop", "keep"}
        How to treat rows with a missing, NaN or infinite cell; see TrainSpec.
    each_worker_reads_all : bool
        Whether the chief and each worker read the whole input_fn of their own process; see TrainSpec.
    session_creator : ChiefSessionCreator or WorkerSessionCreator, optional
        How the session begins, as `WorkerContext.session_creator` returns it. Default: that of a chief.

    Raises
    ------
    UsageError
        If model_fn, the input or the model_dir is wrong, or if this process belongs to a cluster but makes no steps;
        nothing has been started or written then. On a cluster some faults are raised on entering the session.

    Notes
    -----
    Not thread-safe. BLAS has one thread inside the ``with`` block.

    On a cluster, model_fn, params and hooks are those of the chief's process, and each replica has a copy of them. An
    exception in the loop of one replica ends the job; after Ctrl-C in the loop of a worker the others continue to
    train. What a loop does between two steps delays the next checkpoint. When a ps is lost, the session rolls back to
    the last checkpoint within `run`, and ``global_step`` with it. Entering, leaving and `run` raise what
    `train_and_evaluate` does: RoleFailedError, StoppedError, WaitTimeoutError or ConfigError.

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
        input_fn: Callable[..., Any] | tuple[Any, Any],
        hooks: Sequence[SessionRunHook] | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[CheckpointSaverListener] | None = None,
        non_finite: NonFinite = "error",
        each_worker_reads_all: bool = False,
        session_creator: SessionCreator | None = None,
    ) -> None:
        faults = ArgumentFaults("MonitoredTrainingSession: ")
        if not isinstance(estimator, Estimator):
            faults.add_type("estimator", "an Estimator", estimator)
        elif session_creator is not None:
            _check_creator(session_creator, estimator, faults)
        faults.raise_any()
        if isinstance(input_fn, tuple) and len(input_fn) == 2:
            input_fn, each_worker_reads_all = FedInput(*input_fn), True
        self._fed = input_fn if isinstance(input_fn, FedInput) else None
        self._non_finite = non_finite
        spec = TrainSpec(
            input_fn,
            max_steps,
            as_hooks("hooks", hooks),
            () if saving_listeners is None else saving_listeners,
            non_finite,
            each_worker_reads_all,
        )
        self._open = _opening(estimator, spec)
        self._stack = ExitStack()
        self._next_session: NextSession | None = None
        self._entered: MonitoredSession | None = None
        self._was_left = False

    def __enter__(self) -> Self:
        """Open the job and call the hooks. Blocks."""
        if self._entered is not None:
            raise UsageError(("this MonitoredTrainingSession is already entered; leave it first, or make another one",))
        with ExitStack() as stack:
            stack.callback(self._close)
            self._next_session = stack.enter_context(self._open())
            self._begin(None)
            stack.push(lambda kind, error, trace: self._session.__exit__(kind, error, trace))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Call `end` of the hooks and wait for the final checkpoint; after an exception do neither. Blocks."""
        self._was_left = True
        if isinstance(error, _Ended):
            self._stack.__exit__(None, None, None)
            return True
        self._stack.__exit__(kind, error, trace)
        return False

    @property
    def global_step(self) -> int:
        """Updates so far."""
        return self._session.step_session.global_step

    def should_stop(self) -> bool:
        """Whether the loop should end.

        `max_steps` or the input has ended, a stop was requested, the session was left, or the chief has left its own.
        """
        return (self._was_left and self._entered is None) or self._session.should_stop()

    def request_stop(self, reason: str = "its session was asked to stop") -> None:
        """Make no further step."""
        self._session.request_stop(reason)

    def run(self, fetches: Fetches = "loss", feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Make one step; return its `fetches`, in their structure. Blocks.

        After the end of training a call leaves the ``with`` block without an error, by a StopIteration: a loop of a
        fixed number of runs needs no `should_stop`. On a cluster training may roll back to the last checkpoint when a
        ps was lost: the step is made from there.

        Parameters
        ----------
        fetches : str, or sequence or mapping of them, or None
            ``loss``, ``global_step``, keys of predictions, metrics or summaries, names of variables; ``summaries`` for
            all of them.
        feed_dict : mapping of placeholder to array of shape (rows, ...), optional
            The batch, where `input_fn` has placeholders. The step is made only if `fetches` has ``train_op``, as in
            TensorFlow; otherwise the values of the batch are computed with the present variables, and hooks do not run.

        Raises
        ------
        UsageError
            If a name is unknown, the session is not entered, or the wrong placeholders are fed.
        InputError
            If a fed array does not fit its placeholder, or a cell is refused.
        NanLossError, NanGradientError
            If the step computed a non-finite value, unless a NanTensorHook requests a stop instead.
        """
        batch = self._fed_batch(feed_dict)
        while True:
            if self._session.has_ended and not self._was_left:
                logger.warning("run() was called after the end of training, which leaves the loop; see should_stop()")
                raise _Ended("training has ended")
            try:
                if batch is None or _has_train_op(fetches):
                    return self._session.run(fetches, batch)
                return self._session.look(fetches, batch)
            except BREAKS as error:
                self._begin(error)

    def record(self, global_step: int, values: Mapping[str, float]) -> None:
        """Record metrics of this replica; a worker's are named ``role/worker-0/<name>``.

        Raises ArgumentTypeError unless `values` is a mapping of str to number.
        """
        faults = ArgumentFaults("MonitoredTrainingSession.record: ")
        if not isinstance(values, Mapping):
            faults.add_type("values", "a mapping of str to number", values)
        else:
            for name, value in values.items():
                if not is_number(value):
                    faults.add_type(f"values[{name!r}]", "a number", value)
        faults.raise_any()
        self._session.step_session.report(global_step, values)

    def _fed_batch(self, feed_dict: Mapping[Any, Any] | None) -> Batch | None:
        if self._fed is None:
            if feed_dict is not None:
                why = "its batches come from input_fn; pass input_fn=(features, labels) of placeholders to feed them"
                raise UsageError((f"run: this session takes no feed_dict: {why}",))
            return None
        return self._fed.batch({} if feed_dict is None else feed_dict, self._non_finite)

    def _begin(self, error: Exception | None) -> None:
        """Enter the first session, or the next one after `error` broke the last one, until one has begun."""
        assert self._next_session is not None
        while True:
            self._entered = self._next_session(error)
            try:
                self._entered.__enter__()
            except BREAKS as broken:
                error = broken
            else:
                return

    @property
    def _session(self) -> MonitoredSession:
        if self._entered is None:
            raise UsageError(("this MonitoredTrainingSession is not entered; use it inside `with session:`",))
        return self._entered

    def _close(self) -> None:
        self._entered = self._next_session = None


def _has_train_op(fetches: Fetches) -> bool:
    match fetches:
        case str():
            return fetches == TRAIN_OP
        case Mapping():
            return any(map(_has_train_op, fetches.values()))
        case list() | tuple():
            return any(map(_has_train_op, fetches))
        case None:
            return False
        case _:
            assert_never(fetches)


def _opening(estimator: Estimator, spec: TrainSpec) -> Callable[[], AbstractContextManager[NextSession]]:
    """Return the function that opens the session of this process, after checking that it may have one."""
    task = estimator.config.cluster
    if task is None:
        return partial(_opened_here, Attempt(estimator, spec, None, reads_again=True), estimator.config)
    if task.role is None or not task.role.trains:
        who = f"this process is {task.task_type} {task.task_id} of its cluster, which makes no steps"
        raise UsageError((f"MonitoredTrainingSession: {who}; call Server(...).join() in a ps, and start no other",))
    return partial(_opened_manually, estimator, spec, task, str(task.role))


@contextmanager
def _opened_here(attempt: Attempt, config: RunConfig) -> Iterator[NextSession]:
    place = requested_run(config)
    with (
        attempt,
        recorded(place, attempt, attempt.log_event) as hear,
        open_local(attempt.job(), hear, attempt.check) as local,
    ):

        def only(error: Exception | None) -> MonitoredSession:
            if error is not None:
                raise error
            return local.chief.session

        yield only
        local.finish()


@contextmanager
def _opened_manually(estimator: Estimator, spec: TrainSpec, task: ClusterTask, role: str) -> Iterator[NextSession]:
    cluster, handoff = task.cluster, SessionHandoff(role)
    num_ps, num_workers = len(cluster.ps), len(cluster.workers)
    plan = partial(Attempt, estimator, spec, None, num_ps=num_ps, num_workers=num_workers, reads_again=True)
    make_attempt = partial(plan, is_manual=True)
    context, place = get_current_worker_context(), requested_run(estimator.config)

    def run() -> None:
        with nullcontext() if context is None else within(context):  # in the thread of the role, too
            run_manual_role(task, estimator, spec, (), make_attempt, None, None, place, handoff)

    with sigterm_leaves(), handoff.sessions(run) as next_session:
        yield next_session


def _check_creator(given: SessionCreator, estimator: Estimator, faults: ArgumentFaults) -> None:
    match given:
        case ChiefSessionCreator():
            if given.checkpoint_dir is not None and absolute(given.checkpoint_dir) != absolute(estimator.model_dir):
                faults.add(
                    f"MonitoredTrainingSession: session_creator has checkpoint_dir {given.checkpoint_dir!r}, but the "
                    f"Estimator has model_dir {estimator.model_dir!r}, where its checkpoints are; give both the same"
                )
        case WorkerSessionCreator():
            if estimator.config.cluster is None:
                faults.add(
                    "MonitoredTrainingSession: session_creator is that of a worker, which trains with a chief, but the "
                    "RunConfig has no cluster; make it within the worker_fn"
                )
        case _:
            faults.add_type("session_creator", "the result of session_creator() of a worker context, or None", given)
