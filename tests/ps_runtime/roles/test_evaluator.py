"""An evaluator that comes when training is over: what is on disk decides, not who is still there."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord, measured, write_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import BrokenPeerError, CheckpointError, NoBestError, StoppedError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.export.exporters import BestExporter, LatestExporter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.roles.evaluator import _Evaluator, run_evaluator
from psflow.ps_runtime.roles.events import Evaluation, Export
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses, ClusterTask, TaskType
from psflow.ps_runtime.specs.roles import Role
from psflow.ps_runtime.specs.run_config import RunConfig
from tests.ps_runtime.estimator.regression import batches, records, regression, shuffled, steps_of


def nobody(timeout_secs):
    raise BrokenPeerError("ps-0", "nobody listens")


@pytest.fixture
def trained(tmp_path):
    estimator = Estimator(regression, str(tmp_path), RunConfig(tf_random_seed=1, save_checkpoints_steps=5))
    return estimator.train(shuffled, max_steps=12)


def evaluate(roles, estimator, **spec):
    eval_spec = EvalSpec(records, None, **{"start_delay_secs": 0, "throttle_secs": 0} | spec)
    with Attempt(estimator, TrainSpec(shuffled, 20), eval_spec) as attempt:
        job = attempt.job()
        write_finished(estimator.model_dir, 12, "all steps are done")
        events = []
        context = roles.context(job, Role.EVALUATOR, send=events.append)
        return run_evaluator(job, context, [nobody]), events


def test_evaluates_all_that_is_there_and_leaves_though_no_ps_is(roles, trained):
    report, events = evaluate(roles, trained)
    assert report["statistics"]["evaluated_steps"] == steps_of(trained.model_dir) == [0, 5, 10, 12]
    assert [event.step for event in events if isinstance(event, Evaluation)] == [0, 5, 10, 12]
    assert report["transport"] == "none"


def test_an_evaluation_is_reported_before_its_export_is_made(roles, trained):
    seen = []

    class Writer:
        recorder = None

        def check(self, *given):
            pass

        def write(self, directory, bundle):
            Path(directory).mkdir(exist_ok=True)
            Path(directory, "model").write_text("numbers")
            seen.append(bundle.global_step)

    eval_spec = EvalSpec(records, None, start_delay_secs=0, exporters=LatestExporter("latest"))
    with Attempt(trained, TrainSpec(shuffled, 20), eval_spec) as attempt:
        write_finished(trained.model_dir, 12, "all steps are done")
        job = attempt.job(Writer())
        run_evaluator(job, roles.context(job, Role.EVALUATOR, send=lambda e: seen.append(type(e).__name__)), [nobody])
    reported = [what for what in seen if what in (0, 5, "Evaluation", "Export")]
    assert reported[:6] == ["Evaluation", 0, "Export", "Evaluation", 5, "Export"]


def may_lack_its_evaluator(job):
    cluster = ClusterTask(ClusterAddresses("a:1", ps=("b:1",)), TaskType.CHIEF, 0)
    return replace(job, config=RunConfig(job.model_dir, 1, cluster=cluster))


@pytest.mark.parametrize("only_final", [True, False])
def test_what_was_removed_before_an_evaluator_came_is_left_out(roles, trained, only_final, monkeypatch):
    def pending(evaluator):  # as it was before the chief has removed two of them
        return {0: 1.0, 5: 1.0, **whole(evaluator)}

    whole = _Evaluator.pending
    for step in (0, 5):
        shutil.rmtree(CheckpointStore(trained.model_dir).path(step))
    eval_spec = EvalSpec(records, None, start_delay_secs=0, throttle_secs=0)
    with Attempt(trained, TrainSpec(shuffled, 20), eval_spec) as attempt:
        job = attempt.job()
        write_finished(trained.model_dir, 12, "all steps are done")
        monkeypatch.setattr(_Evaluator, "pending", pending)
        context = roles.context(job, Role.EVALUATOR, send=lambda event: None)
        if not only_final:
            with pytest.raises(CheckpointError):
                run_evaluator(job, context, [nobody])
        report = run_evaluator(may_lack_its_evaluator(job), context, [nobody], only_final=only_final)
    assert report["statistics"]["evaluated_steps"] == ([12] if only_final else [10, 12])


def test_evaluates_nothing_twice(roles, trained):
    evaluate(roles, trained)
    report, _ = evaluate(roles, trained)
    assert report["statistics"]["evaluated_steps"] == []
    assert len(EvaluationLog(trained.model_dir).read()) == 4


def test_a_checkpoint_that_was_removed_and_trained_again_is_evaluated_again(roles, trained):
    evaluate(roles, trained)
    shutil.rmtree(trained.latest_checkpoint())
    trained.train(shuffled, max_steps=12)
    report, _ = evaluate(roles, trained)
    assert report["statistics"]["evaluated_steps"] == [12]
    log = EvaluationLog(trained.model_dir)
    assert [e.global_step for e in log.read()] == [0, 5, 10, 12]
    assert log.checkpoints("") == CheckpointStore(trained.model_dir).saved_at()


def test_an_evaluation_of_another_name_is_another_one(roles, trained):
    evaluate(roles, trained)
    report, events = evaluate(roles, trained, name="other")
    assert report["statistics"]["evaluated_steps"] == [0, 5, 10, 12]
    assert events[0].name == "other"


def too_far():
    for number, (features, labels) in enumerate(batches()):
        yield features, labels * np.float32(1 if number == 0 else "inf")


@pytest.mark.filterwarnings("ignore:invalid value")  # of numpy, in the model
@pytest.mark.parametrize("data", ["stream", "data set"])
def test_what_is_not_finite_is_told_as_it_is_and_no_checkpoint_is_the_best(roles, trained, data):
    def whole():
        features, labels = zip(*too_far(), strict=True)
        return {key: np.concatenate([each[key] for each in features]) for key in features[0]}, np.concatenate(labels)

    eval_spec = EvalSpec(
        too_far if data == "stream" else whole,
        None,
        exporters=[BestExporter(), LatestExporter("latest")],
        start_delay_secs=0,
        throttle_secs=0,
        non_finite="keep",
    )
    events = []
    for _ in range(2):  # the second attempt finds everything evaluated
        with Attempt(trained, TrainSpec(shuffled, 20), eval_spec) as attempt:
            write_finished(trained.model_dir, 12, "all steps are done")
            job = attempt.job(Writer())
            with pytest.raises(NoBestError) as caught:
                run_evaluator(job, roles.context(job, Role.EVALUATOR, send=events.append), [nobody])
    told = [event.metrics for event in events if isinstance(event, Evaluation)]
    assert told[0] == {"loss": math.inf, "mae": math.inf}
    assert told == [measured(evaluation.metrics) for evaluation in EvaluationLog(trained.model_dir).read()]
    assert {event.exporter for event in events if isinstance(event, Export)} == {"latest"}
    assert BestExporter().best(trained.model_dir) is None
    assert (caught.value.metrics, caught.value.num_evaluations) == ({"loss": math.inf}, 4)
    where = "labels, row 4 of input_fn" if data == "data set" else "no missing, NaN or infinite value was seen"
    assert where in str(caught.value)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_first_cell_of_a_stream_is_told_with_its_batch(roles, trained):
    eval_spec = EvalSpec(too_far, None, exporters=BestExporter(), start_delay_secs=0, non_finite="keep")
    with Attempt(trained, TrainSpec(shuffled, 20), eval_spec) as attempt:
        write_finished(trained.model_dir, 12, "all steps are done")
        words = r"'eval' has a finite result \(loss is inf\), .* in labels, row 0 of batch 1 \(the first row"
        with pytest.raises(NoBestError, match=words):
            run_evaluator(attempt.job(Writer()), roles.context(attempt.job(), Role.EVALUATOR), [nobody])


def test_one_finite_evaluation_is_enough(roles, trained):
    EvaluationLog(trained.model_dir).append(EvaluationRecord("", 5, 1.0, {"loss": math.nan}, 1.0))
    report, _ = evaluate(roles, trained, exporters=BestExporter())
    assert report["statistics"]["evaluated_steps"] == [0, 5, 10, 12]


def several(**second):
    quick = {"start_delay_secs": 0, "throttle_secs": 0}
    return [EvalSpec(records, None, **quick), EvalSpec(batches, 1, **{"name": "first batch"} | quick | second)]


def evaluate_several(roles, estimator, eval_specs):
    with Attempt(estimator, TrainSpec(shuffled, 20), eval_specs) as attempt:
        write_finished(estimator.model_dir, 12, "all steps are done")
        job = attempt.job()
        events = []
        run_evaluator(job, roles.context(job, Role.EVALUATOR, send=events.append), [nobody])
        return [(event.step, event.name) for event in events if isinstance(event, Evaluation)]


def test_every_checkpoint_is_evaluated_against_each_eval_spec(roles, trained):
    told = evaluate_several(roles, trained, several())
    assert told == [(step, name) for step in (0, 5, 10, 12) for name in (None, "first batch")]
    log = EvaluationLog(trained.model_dir)
    assert log.by_name() == dict.fromkeys(["", "first batch"], CheckpointStore(trained.model_dir).saved_at())
    whole, part = [[e for e in log.read() if e.name == name] for name in ("", "first batch")]
    assert [e.metrics["loss"] for e in whole] != [e.metrics["loss"] for e in part]
    assert len({e.input_digest for e in whole}) == 1
    assert {e.input_digest for e in part} == {""}  # a stream


def test_an_eval_spec_that_comes_later_catches_up(roles, trained):
    evaluate(roles, trained)
    assert evaluate_several(roles, trained, several()) == [(step, "first batch") for step in (0, 5, 10, 12)]


def test_the_end_does_not_wait_for_the_time_of_any_eval_spec(roles, trained):
    told = evaluate_several(roles, trained, several(start_delay_secs=3600, throttle_secs=3600))
    assert told.count((12, "first batch")) == 1


def test_a_replay_beside_it_puts_nothing_twice_into_the_record(roles, trained):
    with Attempt(trained, TrainSpec(shuffled, 20), several()) as attempt:
        write_finished(trained.model_dir, 12, "all steps are done")
        job = attempt.job()
        log, saved = EvaluationLog(trained.model_dir), CheckpointStore(trained.model_dir).saved_at()

        def send(event):  # somebody else is faster with the next one
            if isinstance(event, Evaluation) and event.step == 5:
                log.add(EvaluationRecord("", 10, saved[10], {"loss": 0.5}, 1.0))

        run_evaluator(job, roles.context(job, Role.EVALUATOR, send=send), [nobody])
    lines = (Path(trained.model_dir) / "evaluations.jsonl").read_text().splitlines()
    assert len(lines) == 8
    assert [e.metrics["loss"] for e in log.read() if (e.name, e.global_step) == ("", 10)] == [0.5]


def test_does_not_wait_once_training_is_over(roles, trained):
    report, _ = evaluate(roles, trained, start_delay_secs=3600, throttle_secs=3600)
    assert report["statistics"]["evaluated_steps"][-1] == 12


def test_ends_when_it_is_told_to(roles, trained):
    roles.stop.set()
    with pytest.raises(StoppedError):
        evaluate(roles, trained)


def test_ends_in_the_middle_of_a_long_evaluation(roles, trained):
    read = []

    def endless():
        while True:
            read.append(len(read))
            if len(read) == 5:
                roles.stop.set()
            yield records().read(0, 0, 4)

    with Attempt(trained, TrainSpec(shuffled, 20), EvalSpec(endless, None, start_delay_secs=0)) as attempt:
        with pytest.raises(StoppedError):
            run_evaluator(attempt.job(), roles.context(attempt.job(), Role.EVALUATOR), [nobody])
        assert len(read) == 5  # one of them at the planning


class WarmWriter:
    def __init__(self):
        self.calls = []

    def warm_up(self):
        self.calls.append("warm_up")

    def write(self, directory, bundle):
        self.calls.append(bundle.global_step)
        Path(directory).mkdir()


@pytest.mark.parametrize(("exports", "calls"), [(True, ["warm_up", 0, 5, 10, 12]), (False, [])])
def test_a_writer_warms_up_before_the_first_evaluation_if_it_is_to_write(roles, trained, exports, calls):
    exporters = LatestExporter("latest") if exports else None
    eval_spec = EvalSpec(records, None, exporters=exporters, start_delay_secs=0, throttle_secs=0)
    writer = WarmWriter()
    with Attempt(trained, TrainSpec(shuffled, 20), eval_spec) as attempt:
        write_finished(trained.model_dir, 12, "all steps are done")
        job = attempt.job(writer)
        run_evaluator(job, roles.context(job, Role.EVALUATOR), [nobody])
    assert writer.calls == calls


class Writer:
    def __init__(self):
        self.features = []

    def write(self, directory, bundle):
        self.features.append(bundle.features)
        Path(directory).mkdir()


def test_a_generator_is_opened_once_for_each_evaluation_also_when_it_exports(roles, trained):
    opened = []

    def batches_once():
        opened.append(True)
        yield from batches()

    eval_spec = EvalSpec(batches_once, None, exporters=LatestExporter("latest"), start_delay_secs=0, throttle_secs=0)
    writer = Writer()
    with Attempt(trained, TrainSpec(shuffled, 20), eval_spec) as attempt:
        opened.clear()
        write_finished(trained.model_dir, 12, "all steps are done")
        job = attempt.job(writer)
        run_evaluator(job, roles.context(job, Role.EVALUATOR), [nobody])
    assert len(opened) == len(writer.features) == 4
    for features in writer.features:
        assert features["row"].tolist() == [0, 1, 2]


@pytest.mark.process
def test_memory_does_not_grow_with_every_evaluation():
    program = [sys.executable, "-m", "tests.evaluator_memory", "12"]  # a process of its own, else others are counted
    done = subprocess.run(program, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    assert float(done.stdout.splitlines()[-1]) < 5.0
