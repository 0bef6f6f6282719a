"""The roles of a job: who trains, saves and reports, and what each knows of its place. They are threads here."""

from __future__ import annotations

import threading
from collections import Counter
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest

import psflow
from psflow import metrics, summary
from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import (
    Checkpoint,
    FirstStep,
    Metrics,
    PsListening,
    Restored,
    SummaryFile,
    TrainingLoss,
)
from tests.conformance.programs import line, rows
from tests.limits import HANG_SECS
from tests.ps_runtime.roles.conftest import RoleThreads, roles  # noqa: F401  (a fixture)

MAX_STEPS = 23
REPLICAS = ["chief-0", "worker-0", "worker-1"]
FACTS = {"chief-0": (True, 0), "worker-0": (False, 1), "worker-1": (False, 2)}
"""Whether it is the chief, and its number among the tasks of the cluster."""


def endless():
    return psflow.Dataset({"x": np.arange(12, dtype=np.float32)}, np.zeros(12, np.float32)).batch(2).repeat()


def facts_of(config):
    assert (config.num_ps_replicas, config.num_worker_replicas) == (2, len(REPLICAS))
    return f"{config.task_type}-{config.task_id}", (config.is_chief, config.global_id_in_cluster)


class Noting(psflow.SessionRunHook):
    """Counts the steps of each replica, none of which begins before all are there."""

    def __init__(self):
        self.lock = threading.Lock()
        self.all_are_there = threading.Barrier(len(REPLICAS), timeout=HANG_SECS)
        self.steps = Counter()
        self.facts = {}

    def before_run(self, run_context):
        name, facts = facts_of(run_context.session.config)
        with self.lock:
            is_first = name not in self.facts
            self.facts[name] = facts
        if is_first:
            self.all_are_there.wait()

    def after_run(self, run_context, run_values):
        name, _ = facts_of(run_context.session.config)
        with self.lock:
            self.steps[name] += 1


class Listener(psflow.CheckpointSaverListener):
    def __init__(self):
        self.saved = []

    def after_save(self, session, global_step):
        self.saved.append(global_step)


class HeardThreads(RoleThreads):
    """Keeps what each role tells, and counts how often the saver of the chief looks up."""

    def __init__(self):
        super().__init__()
        self.events = []
        self.looks_of_saver = threading.Semaphore(0)

    def check(self):
        super().check()
        if threading.current_thread().name == "psflow-saver":
            self.looks_of_saver.release()

    def context(self, job, role, index=0, send=lambda event: None):
        def keep(event):
            self.events.append(event)
            send(event)

        return super().context(job, role, index, keep)


class OutlastsLooks(psflow.SessionRunHook):
    """Has the chief begin once its saver has looked up twice, whether the training is still going on."""

    def __init__(self, threads):
        self.threads = threads

    def after_create_session(self, session, coord):
        if session.is_chief:
            assert all(self.threads.looks_of_saver.acquire(timeout=HANG_SECS) for _ in range(2))


def run_job(model_dir, max_steps):
    """Train with a chief and two workers on two ps; each update makes ``w`` one larger."""
    told, lock = {}, threading.Lock()

    def model_fn(features, labels, mode, config):
        w = psflow.get_variable("w", initializer=0.0)
        if mode == psflow.ModeKeys.EVAL:
            return psflow.EstimatorSpec(mode, loss=np.float32(0), eval_metric_ops={"w": metrics.mean(w)})
        if config.num_worker_replicas > 1:  # the plan of the job calls it, too
            name, facts = facts_of(config)
            with lock:
                told[name] = facts
        summary.scalar("largest", features["x"].max())
        op = psflow.GradientDescent(learning_rate=1.0).apply_gradients({"w": np.float32(-1)})
        return psflow.EstimatorSpec(mode, loss=np.float32(0), train_op=op)

    config = psflow.RunConfig(tf_random_seed=1, save_checkpoints_steps=5, save_summary_steps=1)
    estimator = psflow.Estimator(model_fn, model_dir, config)
    hook, listener, threads = Noting(), Listener(), HeardThreads()
    spec = psflow.TrainSpec(endless, max_steps, [hook, OutlastsLooks(threads)], [listener])
    with Attempt(estimator, spec, None, num_ps=2, num_workers=2) as attempt:
        reports = threads.train(attempt.job())
    threads.join()
    return SimpleNamespace(
        estimator=estimator, hook=hook, listener=listener, events=threads.events, reports=reports, told=told
    )


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return run_job(tmp_path_factory.mktemp("job") / "model", MAX_STEPS)


def test_the_chief_trains_as_every_worker_does(job):
    assert sorted(job.hook.steps) == REPLICAS
    assert job.hook.steps.total() == MAX_STEPS


def test_each_replica_knows_its_place(job):
    assert job.hook.facts == FACTS
    assert job.told == FACTS


def test_the_chief_alone_saves_and_has_listeners(job):
    saved = [(event.role, event.step) for event in job.events if isinstance(event, Checkpoint)]
    assert saved == [("chief-0", step) for step in (0, 5, 10, 15, 20, MAX_STEPS)]
    assert job.listener.saved == [step for _, step in saved]


def test_the_chief_alone_reports_summaries(job):
    tellers = {event.role for event in job.events if isinstance(event, Metrics) and "largest" in event.values}
    assert tellers == {"chief-0"}


def test_a_ps_alone_can_be_reached(job):
    assert sorted(event.role for event in job.events if isinstance(event, PsListening)) == ["ps-0", "ps-1"]


def test_every_checkpoint_holds_the_updates_up_to_the_step_in_its_name(job):
    store = CheckpointStore(job.estimator.model_dir)
    for step in store.steps():
        measured = job.estimator.evaluate(endless, 1, checkpoint_path=store.path(step))
        assert (measured["global_step"], measured["w"]) == (step, step)


def test_no_push_is_lost_at_the_end_and_every_role_leaves(job):
    assert job.estimator.get_variable_value("w") == read_finished(job.estimator.model_dir).final_step == MAX_STEPS
    assert {role: report["exit"] for role, report in job.reports.items()} == dict.fromkeys(
        [*REPLICAS, "ps-0", "ps-1"], "finished"
    )


@pytest.mark.parametrize("max_steps", [len(REPLICAS), MAX_STEPS])
def test_each_replica_tells_once_that_it_has_begun(tmp_path, max_steps):
    short = run_job(tmp_path / "model", max_steps)
    assert sorted(event.role for event in short.events if isinstance(event, FirstStep)) == REPLICAS
    losses = [event for event in short.events if isinstance(event, TrainingLoss)]
    assert sorted(event.role for event in losses if event.is_last) == REPLICAS
    assert min(event.step for event in losses) == 0
    assert max_steps > len(REPLICAS) or short.hook.steps == dict.fromkeys(REPLICAS, 1)


def test_a_job_that_goes_on_restores_and_reports_what_it_did_itself(tmp_path):
    run_job(tmp_path / "model", 7)
    again = run_job(tmp_path / "model", 12)
    [restored] = [event for event in again.events if isinstance(event, Restored)]
    assert (restored.role, restored.step) == ("chief-0", 7)
    assert restored.path == str(tmp_path / "model" / "checkpoints" / "step_00000007")
    assert 0 <= restored.secs < HANG_SECS
    assert again.hook.steps.total() == 5
    told = again.reports["chief-0"]["statistics"]["train"]
    assert told["steps"] == 5
    assert told["steps_per_sec"] == pytest.approx(5 / told["secs"], rel=1e-3, abs=1e-3)
    assert told["examples_per_sec"] == pytest.approx(2 * 5 / told["secs"], rel=1e-3, abs=1e-3)


class Telling(psflow.SessionRunHook):
    """Tells what model_fn has summed up, and how many gradients an update takes."""

    def after_run(self, run_context, run_values):
        session = run_context.session
        session.report(session.global_step, {"gradients": session.gradients_per_step})
        for name, content in session.file_summaries.items():
            session.put_file(session.global_step, name + content.suffix, content.content(session.global_step))


@pytest.mark.parametrize(("consistency", "num_gradients"), [(psflow.Async(), 1), (psflow.Sync(), 3)])
def test_what_hooks_of_a_worker_tell_is_under_its_name(tmp_path, consistency, num_gradients):
    def model_fn(features, labels, mode):
        psflow.get_variable("w", initializer=0.0)
        summary.text("note", "seen")
        op = psflow.GradientDescent(learning_rate=1.0).apply_gradients({"w": np.float32(-1)})
        return psflow.EstimatorSpec(mode, loss=np.float32(0), train_op=op)

    threads, config = HeardThreads(), psflow.RunConfig(tf_random_seed=1, consistency=consistency)
    estimator = psflow.Estimator(model_fn, tmp_path / "model", config)
    spec = psflow.TrainSpec(endless, 6, [Noting(), Telling()])
    with Attempt(estimator, spec, None, num_ps=2, num_workers=2) as attempt:
        threads.train(attempt.job())
    threads.join()
    told = {(event.role, event.file) for event in threads.events if isinstance(event, SummaryFile)}
    workers = ["worker-0", "worker-1"]
    assert told == {
        ("chief-0", "summaries/note.md"),
        *((name, f"summaries/role/{name}/note.md") for name in workers),
    }
    numbers = {(e.role, k, v) for e in threads.events if isinstance(e, Metrics) for k, v in e.values.items()}
    assert {number for number in numbers if number[1].endswith("gradients")} == {
        ("chief-0", "gradients", num_gradients),
        *((name, f"role/{name}/gradients", num_gradients) for name in workers),
    }


# What travels to them


class OwnEstimator(psflow.Estimator):
    """An Estimator whose model_fn is a method of it, as many programs write one."""

    def __init__(self, model_dir, config):
        super().__init__(self._model, model_dir, config, {"slope": 2.0})

    def _model(self, features, labels, mode, params):
        return line(features, params["slope"] * features["x"], mode)


def of_a_script(model_dir, config):
    script = {"__name__": "__main__", "line": line}
    exec("def model_fn(features, labels, mode):\n    return line(features, labels, mode)", script)
    return psflow.Estimator(script["model_fn"], model_dir, config)


def of_a_closure(model_dir, config):
    return psflow.Estimator(lambda features, labels, mode: line(features, labels, mode), model_dir, config)


def of_a_module(model_dir, config):
    return psflow.Estimator(line, model_dir, config)


@pytest.mark.parametrize("make", [OwnEstimator, of_a_script, of_a_closure, of_a_module])
def test_code_of_the_user_travels_wherever_it_is_written(roles, make, tmp_path):  # noqa: F811
    config = psflow.RunConfig(tf_random_seed=1)
    num_epochs = 2
    there = make(tmp_path / "there", config)
    with Attempt(there, psflow.TrainSpec(lambda: rows().repeat(num_epochs)), None) as attempt:
        roles.train(cloudpickle.loads(cloudpickle.dumps(attempt.job())))
    here = make(tmp_path / "here", config).train(lambda: rows().repeat(num_epochs))
    assert there.get_variable_value("w") == here.get_variable_value("w") != 0.5
    assert read_finished(there.model_dir).final_step == 6
