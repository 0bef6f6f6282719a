"""Workers whose lives end before the job does, over real sockets: one that hangs, and one that leaves in order."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from psflow.ps_runtime.errors import IncarnationOverError, StoppedError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.hooks.base import SessionRunHook
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.roles.chief import run_chief
from psflow.ps_runtime.roles.trainer import run_worker
from psflow.ps_runtime.specs.consistency import StepDeadline
from psflow.ps_runtime.specs.roles import Role
from psflow.ps_runtime.specs.run_config import RunConfig
from tests.limits import HANG_SECS
from tests.ps_runtime.estimator.regression import NUM_BATCHES, NUM_RECORDS, records, regression, steps_of

AT_STEP = 3
"""Of its own, in which the worker hangs, or after which it leaves."""


class Turns(SessionRunHook):
    """Has the chief begin its second step only once the worker is where the test wants it."""

    def __init__(self):
        self.is_there = threading.Event()
        self.is_over = threading.Event()
        """The chief has come to the end of the job."""
        self.num_steps = {True: 0, False: 0}

    def before_run(self, run_context):
        """Wait, or be where the test wants it."""
        is_chief = run_context.session.is_chief
        self.num_steps[is_chief] += 1
        if is_chief and self.num_steps[is_chief] == 2:
            assert self.is_there.wait(HANG_SECS)
        if not is_chief and self.num_steps[is_chief] == AT_STEP:
            self.at_step()

    def at_step(self):
        """Do what the test is about, in the worker."""
        self.is_there.set()

    def end(self, session):
        """Say so, in the chief."""
        if session.is_chief:
            self.is_over.set()


class Hang(Turns):
    """Has the worker hang until the job is over."""

    def at_step(self):
        """Hang."""
        super().at_step()
        assert self.is_over.wait(HANG_SECS)


@pytest.mark.parametrize("num_ps", [1, 2])
def test_a_worker_that_hangs_is_not_waited_for_and_its_late_push_counts_never(roles, tmp_path, num_ps):
    deadline = StepDeadline(min_secs=0.1)
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=5, step_deadline=deadline)
    estimator = Estimator(regression, str(tmp_path), config)
    words = r"^ps.* refused: incarnation \d+ of worker-0 is not part of this job any more: it made no push within 0.1 s"
    with (
        Attempt(estimator, TrainSpec(records, None, [Hang()]), None, num_workers=1, num_ps=num_ps) as attempt,
        pytest.raises(IncarnationOverError, match=words),
    ):
        roles.train(attempt.job())
    assert steps_of(str(tmp_path))[-1] == NUM_BATCHES


@pytest.mark.parametrize("pipeline_depth", [0, 1])
def test_a_worker_that_leaves_in_order_finishes_its_push_and_begins_again(roles, tmp_path, pipeline_depth):
    leaving = threading.Event()
    turns = Turns()
    turns.at_step = leaving.set
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=50, pipeline_depth=pipeline_depth)
    estimator = Estimator(regression, str(tmp_path), config)
    with Attempt(estimator, TrainSpec(records, None, [turns]), None, num_workers=1) as attempt:
        job = attempt.job()
        _, connect_functions = roles.start_ps(job)
        context = roles.context(job, Role.WORKER)
        chief = roles.start(lambda: run_chief(job, roles.context(job, Role.CHIEF), connect_functions))
        first = roles.start(
            lambda: run_worker(job, replace(context, is_shutting_down=leaving.is_set), connect_functions)
        )
        with pytest.raises(StoppedError, match=r"^worker-0 was stopped: its Dask worker closes"):
            first.result(HANG_SECS)
        assert turns.num_steps[False] == AT_STEP
        second = roles.start(
            lambda: run_worker(job, replace(context, incarnation=context.incarnation + 1), connect_functions)
        )
        turns.is_there.set()
        reports = [chief.result(HANG_SECS), second.result(HANG_SECS)]
    facts = reports[0]["statistics"]["job"]
    assert (facts["examples"], facts["repeats"], facts["misses"]) == (NUM_RECORDS, 0, 0)
    assert [report["exit"] for report in reports] == ["finished", "finished"]
    assert steps_of(str(tmp_path))[-1] == NUM_BATCHES
