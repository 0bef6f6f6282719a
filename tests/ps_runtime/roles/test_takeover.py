"""A chief that is lost at any of its messages: its next life goes on with the job as it stands, over real sockets."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.client.shard_client import ShardClient
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.hooks.base import CheckpointSaverListener, SessionRunHook
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.protocol.job_state import JobState
from psflow.ps_runtime.protocol.message import Kind
from psflow.ps_runtime.roles.chief import run_chief
from psflow.ps_runtime.roles.events import Checkpoint, Restored
from psflow.ps_runtime.roles.saver import ChiefSaver
from psflow.ps_runtime.roles.trainer import run_worker
from psflow.ps_runtime.specs.roles import Role
from psflow.ps_runtime.specs.run_config import RunConfig
from tests.limits import HANG_SECS
from tests.ps_runtime.estimator.regression import (
    NUM_BATCHES,
    NUM_RECORDS,
    arrays_of,
    records,
    regression,
    shuffled,
    steps_of,
)

MAX_STEPS = 12
STEPS = [0, 5, 10, 12]
"""Of all checkpoints."""


class KilledError(Exception):
    """The process of the chief is gone."""


@dataclass
class Kill:
    """Ends the first life of a chief at one of its messages, before or after that is sent; then it says no more."""

    kind: Kind
    number: int
    """Of the messages of this kind to one ps, from 1."""
    ps: int = 0
    is_sent: bool = False
    has_hit: bool = field(default=False, init=False)
    first_life: int | None = field(default=None, init=False)
    said: Counter = field(default_factory=Counter, init=False)
    """Messages by life, kind and ps."""

    def send(self, client, message):
        """Stand for `ShardClient.send`."""
        return self.say(SEND, client, message)

    def deposit(self, client, message):
        """Stand for `ShardClient.deposit`."""
        return self.say(DEPOSIT, client, message)

    def say(self, how, client, message):
        who, ps = client._identity, int(client.connection.peer.removeprefix("ps-").split()[0])
        if who.name != "chief-0":
            return how(client, message)
        self.first_life = self.first_life if self.first_life is not None else who.incarnation
        self.said[who.incarnation, message.kind, ps] += 1
        is_first = who.incarnation == self.first_life
        here = (message.kind, self.said[who.incarnation, message.kind, ps], ps) == (self.kind, self.number, self.ps)
        if is_first and (self.has_hit or (here and not self.is_sent)):
            self.has_hit = True
            raise KilledError
        result = how(client, message)
        if is_first and here:
            self.has_hit = True
            raise KilledError
        return result

    def of_later_lives(self, kind):
        """Return how often a later life has said something."""
        return sum(number for (life, said, _), number in self.said.items() if said is kind and life != self.first_life)


SEND, DEPOSIT = ShardClient.send, ShardClient.deposit


def name_dials(connect_functions):
    """Have each connection say which ps it is to."""

    def named(index, dial):
        def connect(secs):
            connection = dial(secs)
            connection.peer = f"ps-{index} {connection.peer}"
            return connection

        return connect

    return [named(index, dial) for index, dial in enumerate(connect_functions)]


def estimator_at(model_dir, **config):
    return Estimator(regression, str(model_dir), RunConfig(tf_random_seed=1, save_checkpoints_steps=5, **config))


def two_lives(roles, job, connect_functions, events=None):
    """Be a chief that is killed, then its next life; return the report of that."""
    send = (events if events is not None else []).append
    with pytest.raises(KilledError):
        run_chief(job, roles.context(job, Role.CHIEF, send=send), connect_functions)
    context = roles.context(job, Role.CHIEF, send=send)
    return run_chief(job, replace(context, incarnation=context.incarnation + 1), connect_functions)


KILLS = [
    Kill(Kind.NEXT, 1),
    Kill(Kind.PULL, 4, ps=1),
    Kill(Kind.PUSH, 3, ps=1, is_sent=True),
    Kill(Kind.PUSH, 3),
    Kill(Kind.PUSH, 3, is_sent=True),
    Kill(Kind.AWAIT_SNAPSHOT, 2, is_sent=True),
    Kill(Kind.SNAPSHOT, 2),
    Kill(Kind.SNAPSHOT, 2, is_sent=True),
    Kill(Kind.RESUME, 2),
    Kill(Kind.RESUME, 2, is_sent=True),
    Kill(Kind.WRITE, 2),
    Kill(Kind.WRITE, 2, is_sent=True),
    Kill(Kind.WRITE, 2, ps=1, is_sent=True),
    Kill(Kind.COMMITTED, 2),
    Kill(Kind.COMMITTED, 2, is_sent=True),
    Kill(Kind.SNAPSHOT, 4),
    Kill(Kind.RESUME, 4, is_sent=True),
    Kill(Kind.WRITE, 4, is_sent=True),
    Kill(Kind.COMMITTED, 4),
    Kill(Kind.FINISH, 1),
    Kill(Kind.FINISH, 1, is_sent=True),
]


@pytest.mark.parametrize("kill", KILLS, ids=lambda k: f"{k.kind.name}-{k.number}-{k.ps}-{'sent' if k.is_sent else ''}")
def test_a_chief_that_is_lost_at_any_message_is_taken_over_from_with_the_bits_of_an_undisturbed_job(
    roles, tmp_path, undisturbed, monkeypatch, kill
):
    kill = replace(kill)
    monkeypatch.setattr(ShardClient, "send", lambda client, message: kill.send(client, message))
    monkeypatch.setattr(ShardClient, "deposit", lambda client, message: kill.deposit(client, message))
    estimator, events = estimator_at(tmp_path), []
    with Attempt(estimator, TrainSpec(shuffled, MAX_STEPS), None, num_ps=2) as attempt:
        job = attempt.job()
        _, connect_functions = roles.start_ps(job)
        report = two_lives(roles, job, name_dials(connect_functions), events)
    assert kill.has_hit
    assert [kill.of_later_lives(kind) for kind in (Kind.INITIALIZE, Kind.RESTORE)] == [0, 0]
    assert steps_of(estimator.model_dir) == STEPS
    for step in STEPS:
        assert arrays_of(estimator.model_dir, step) == arrays_of(undisturbed, step)
    facts = report["statistics"]["job"]
    assert (facts["global_step"], facts["repeats"], facts["misses"]) == (MAX_STEPS, 0, 0)
    assert report["statistics"]["train"]["steps"] == MAX_STEPS  # of the attempt, also where the last life made none
    assert report["exit"] == "finished"
    assert read_finished(estimator.model_dir).final_step == MAX_STEPS
    told = [event.step for event in events if isinstance(event, Checkpoint)]
    assert told == sorted(set(told))
    assert not any(isinstance(event, Restored) for event in events)


def test_training_that_goes_back_before_there_is_a_checkpoint_says_from_which_step(roles, tmp_path):
    first, later = [], []
    with Attempt(estimator_at(tmp_path), TrainSpec(shuffled, 5), None) as attempt:
        job = attempt.job()
        for events, incarnation in ((first, job.first_incarnation), (later, job.first_incarnation + 1)):
            _, connect_functions = roles.start_ps(job)
            context = replace(roles.context(job, Role.CHIEF, send=events.append), incarnation=incarnation)
            run_chief(job, context, connect_functions)
            shutil.rmtree(tmp_path / "checkpoints")
    assert not any(isinstance(event, Restored) for event in first)
    [event] = [event for event in later if isinstance(event, Restored)]
    assert (event.step, event.secs >= 0) == (0, True)


@pytest.mark.parametrize("loses_ps", [False, True])
@pytest.mark.parametrize("dies_at", [1, 3])
def test_the_chief_reports_the_figures_of_the_whole_attempt_whichever_roles_are_lost(
    roles, tmp_path, loses_ps, dies_at
):
    estimator = estimator_at(tmp_path)
    estimator.train(shuffled, max_steps=5)
    with Attempt(estimator, TrainSpec(shuffled, MAX_STEPS, [DieAt(dies_at)]), None) as attempt:
        job = attempt.job()
        _, connect_functions = roles.start_ps(job)
        context = replace(roles.context(job, Role.CHIEF), incarnation=job.first_incarnation)
        with pytest.raises(KilledError):
            run_chief(job, context, connect_functions)
        if loses_ps:  # so training goes back to step 5
            _, connect_functions = roles.start_ps(job)
        job = replace(job, train_spec=replace(job.train_spec, hooks=[]))
        later = replace(context, incarnation=job.first_incarnation + 1, first_step_at=time.time() - 1000.0)
        train = run_chief(job, later, connect_functions)["statistics"]["train"]
    assert train["steps"] == MAX_STEPS - 5
    assert 1000.0 <= train["secs"] < 1000.0 + HANG_SECS
    assert train["steps_per_sec"] == pytest.approx(train["steps"] / train["secs"], rel=0.01)
    assert train["examples_per_sec"] == pytest.approx(4 * train["steps"] / train["secs"], rel=0.01)


def test_the_seconds_of_an_attempt_are_those_of_the_last_life_at_least_whatever_the_clocks_say(roles, tmp_path):
    with Attempt(estimator_at(tmp_path), TrainSpec(shuffled, 3), None) as attempt:
        job = attempt.job()
        _, connect_functions = roles.start_ps(job)
        context = replace(roles.context(job, Role.CHIEF), first_step_at=time.time() + 1000.0)
        train = run_chief(job, context, connect_functions)["statistics"]["train"]
    assert 0 < train["secs"] < HANG_SECS


def test_an_attempt_after_one_that_left_no_checkpoint_says_that_training_is_at_its_first_values(roles, tmp_path):
    told = []
    for _ in range(2):
        events = []
        with Attempt(estimator_at(tmp_path), TrainSpec(shuffled, 5), None) as attempt:
            job = attempt.job()
            _, connect_functions = roles.start_ps(job)
            run_chief(job, roles.context(job, Role.CHIEF, send=events.append), connect_functions)
        shutil.rmtree(tmp_path / "checkpoints")
        told.append([event.step for event in events if isinstance(event, Restored)])
    assert told == [[], [0]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The model_dir of a job whose chief was not lost."""
    estimator = estimator_at(tmp_path_factory.mktemp("undisturbed"))
    estimator.train(shuffled, max_steps=MAX_STEPS)
    return estimator.model_dir


def test_a_chief_that_is_lost_before_its_manifest_has_the_next_life_commit_the_same_cut(
    roles, tmp_path, undisturbed, monkeypatch
):
    commit, killed = CheckpointStore.commit, []

    def commit_once(store, manifest):
        if manifest.step == 5 and not killed:
            killed.append(manifest)
            raise KilledError
        return commit(store, manifest)

    monkeypatch.setattr(CheckpointStore, "commit", commit_once)
    estimator, saves = estimator_at(tmp_path), Saves()
    with Attempt(estimator, TrainSpec(shuffled, MAX_STEPS, saving_listeners=[saves]), None) as attempt:
        job = attempt.job()
        _, connect_functions = roles.start_ps(job)
        two_lives(roles, job, connect_functions)
    [manifest] = killed
    assert CheckpointStore(estimator.model_dir).manifest(5).job == manifest.job
    assert arrays_of(estimator.model_dir, 5) == arrays_of(undisturbed, 5)
    assert steps_of(estimator.model_dir) == STEPS
    assert saves.seen == [
        *["begin", "before 0", "after 0", "before 5"],
        *["begin", "before 5", "after 5", "before 10", "after 10", "before 12", "after 12", "end 12"],
    ]


class Saves(CheckpointSaverListener):
    """Keeps what it hears of checkpoints."""

    def __init__(self):
        self.seen = []

    def begin(self):
        self.seen.append("begin")

    def before_save(self, session, global_step):
        self.seen.append(f"before {global_step}")

    def after_save(self, session, global_step):
        self.seen.append(f"after {global_step}")

    def end(self, session, global_step):
        self.seen.append(f"end {global_step}")


class DieAt(SessionRunHook):
    """Kills the chief in one of its steps."""

    def __init__(self, number):
        self.number = number
        self.num_steps = 0

    def before_run(self, run_context):
        if run_context.session.is_chief:
            self.num_steps += 1
            if self.num_steps == self.number:
                raise KilledError


@pytest.mark.parametrize("pipeline_depth", [0, 1])
@pytest.mark.parametrize("each_worker_reads_all", [False, True])
def test_the_others_go_on_to_the_next_cut_without_a_chief_and_no_record_is_lost(
    roles, tmp_path, pipeline_depth, each_worker_reads_all
):
    estimator = estimator_at(tmp_path, pipeline_depth=pipeline_depth)
    spec = TrainSpec(records, None, [DieAt(2)], each_worker_reads_all=each_worker_reads_all)
    with Attempt(estimator, spec, None, num_workers=1) as attempt:
        job = attempt.job()
        (ps,), connect_functions = roles.start_ps(job)
        worker = roles.start(lambda: run_worker(job, roles.context(job, Role.WORKER), connect_functions))
        report = two_lives(roles, job, connect_functions)
        reports = [report, worker.result(HANG_SECS), ps.result(HANG_SECS)]
    facts, num_passes = report["statistics"]["job"], 2 if each_worker_reads_all else 1
    assert (facts["examples"], facts["repeats"], facts["misses"]) == (num_passes * NUM_RECORDS, 0, 0)
    assert steps_of(estimator.model_dir)[-1] == num_passes * NUM_BATCHES
    assert [report["exit"] for report in reports] == ["finished"] * 3


def test_a_chief_that_is_lost_before_the_job_is_open_gives_the_values_once_more(roles, tmp_path, monkeypatch):
    kill = Kill(Kind.OPEN, 1)
    monkeypatch.setattr(ShardClient, "send", lambda client, message: kill.send(client, message))
    estimator = estimator_at(tmp_path)
    with Attempt(estimator, TrainSpec(shuffled, 3), None) as attempt:
        job = attempt.job()
        _, connect_functions = roles.start_ps(job)
        two_lives(roles, job, name_dials(connect_functions))
    assert kill.of_later_lives(Kind.INITIALIZE) == 1
    assert steps_of(estimator.model_dir) == [0, 3]


@pytest.mark.parametrize(
    ("state", "last_step", "age_secs"),
    [
        (JobState(is_open=True, is_finished=False), 5, 100.0),
        (JobState(is_open=False, is_finished=False), 5, 0.0),
        (JobState(is_open=True, is_finished=False), -1, 0.0),
        (JobState(is_open=True, is_finished=False), 10, 0.0),  # by a clock that is ahead of ours
    ],
)
def test_the_seconds_until_the_next_checkpoint_run_on_in_a_chief_that_takes_over(state, last_step, age_secs):
    now = time.time()
    store = SimpleNamespace(saved_at=lambda: {5: now - 100.0, 10: now + 100.0})

    def await_snapshot(timeout_secs):
        raise KilledError

    job = SimpleNamespace(model_dir="unused", train_spec=SimpleNamespace(saving_listeners=()))
    saver = ChiefSaver(job, SimpleNamespace(await_snapshot=await_snapshot), None, store)
    begun_at = saver.last_snapshot_at
    saver.start(last_step, state)
    saver.await_end()
    assert begun_at - saver.last_snapshot_at == pytest.approx(age_secs, abs=5.0)


class StopAt(SessionRunHook):
    """Asks to end training after a global step."""

    def after_run(self, run_context, run_values):
        if run_context.session.global_step == 7:
            run_context.request_stop()


def test_a_wish_to_stop_is_kept_though_the_chief_is_lost_that_told_of_it(roles, tmp_path, monkeypatch):
    kill = Kill(Kind.STOP, 1, is_sent=True)
    monkeypatch.setattr(ShardClient, "send", lambda client, message: kill.send(client, message))
    estimator = estimator_at(tmp_path)
    with Attempt(estimator, TrainSpec(shuffled, MAX_STEPS, [StopAt()]), None) as attempt:
        job = attempt.job()
        _, connect_functions = roles.start_ps(job)
        two_lives(roles, job, name_dials(connect_functions))
    assert steps_of(estimator.model_dir) == [0, 5, 7]
    assert read_finished(estimator.model_dir).reason == "a hook asked to stop"
