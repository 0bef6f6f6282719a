"""A loop of the user's own over the steps of a training."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import psflow
from psflow import MonitoredTrainingSession, summary
from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import InputError, ModelDirError, NanLossError, UsageError
from psflow.ps_runtime.estimator.eval_metrics import stopped_exactly
from tests.limits import HANG_SECS


def model_fn(features, labels, mode):
    w = psflow.get_variable("w", (), initializer=lambda shape, dtype, rng: np.ones(shape, dtype))
    summary.scalar("largest", features["x"].max())
    op = psflow.GradientDescent(learning_rate=1.0).apply_gradients({"w": np.float32(1)})
    return psflow.EstimatorSpec(mode, {"y": w * features["x"]}, np.mean(features["x"]), op)


def examples():
    return psflow.Dataset({"x": np.arange(6, dtype=np.float32)}, np.zeros(6, np.float32)).batch(2)


def endless():
    return examples().repeat()


@pytest.fixture
def estimator(tmp_path):
    config = psflow.RunConfig(tf_random_seed=1, save_checkpoints_steps=4)
    return psflow.Estimator(model_fn, str(tmp_path / "model"), config)


def steps_of(estimator):
    return CheckpointStore(estimator.model_dir).steps()


def fail_after(session, *fetches):
    """Make a step for each of `fetches`, and fail."""
    with session:
        for wanted in fetches:
            session.run(wanted)
        raise ZeroDivisionError("as planned")


def losses_of(session):
    found = []
    while not session.should_stop():
        found.append(session.run())
    return found


# The loop

ENDS = [
    (examples, None, 3),
    (examples, 2, 2),
    (examples, 3, 3),
    (examples, 9, 3),
    (endless, 1, 1),
    (endless, 6, 6),
]


@pytest.mark.parametrize(("input_fn", "max_steps", "num_steps"), ENDS)
def test_makes_a_step_for_each_run_until_the_end(estimator, input_fn, max_steps, num_steps):
    with MonitoredTrainingSession(estimator, input_fn, max_steps=max_steps) as session:
        assert session.global_step == 0
        assert losses_of(session) == [0.5, 2.5, 4.5, 0.5, 2.5, 4.5][:num_steps]
        assert session.global_step == num_steps
    assert steps_of(estimator)[-1] == num_steps
    assert read_finished(estimator.model_dir).final_step == num_steps


FETCHES = [
    ("loss", 0.5),
    ("global_step", 2),
    ("w", -1.0),
    ("largest", 1.0),
    (["loss", "w"], [2.5, -3.0]),
    ({"a": "loss", "b": ["global_step"]}, {"a": 4.5, "b": [6]}),
    (None, None),
    ((), ()),
]


def test_a_run_returns_what_is_fetched(estimator):
    with MonitoredTrainingSession(estimator, endless) as session:
        assert [session.run(fetches) for fetches, _ in FETCHES] == [values for _, values in FETCHES]


def test_fetches_may_change_from_run_to_run_and_hooks_hear_of_them(estimator):
    seen = []

    class Seeing(psflow.SessionRunHook):
        def before_run(self, run_context):
            seen.append(run_context.original_args.fetches)

    with MonitoredTrainingSession(estimator, endless, [Seeing()]) as session:
        session.run("loss")
        session.run(wanted := ["loss", "w"])
        session.run(wanted)
        session.run()
    assert seen == ["loss", wanted, wanted, "loss"]


def test_before_the_first_run_a_session_has_seen_nothing(estimator):
    seen = []

    class Early(psflow.SessionRunHook):
        def after_create_session(self, session, coord):
            seen.extend([session.global_step, session.num_steps, session.num_examples, session.summaries])
            seen.extend([session.file_summaries, session.staleness, session.staleness_sum, session.fault])
            assert np.isnan(session.loss)

    with MonitoredTrainingSession(estimator, endless, [Early()]) as session:
        assert (session.global_step, session.should_stop()) == (0, False)
        session.run()
    assert seen == [0, 0, 0, {}, {}, 0, 0, None]


@pytest.mark.parametrize(("depth", "now"), [(0, [0.0, -1.0, -2.0]), (1, None)])
def test_where_a_step_pulls_ahead_a_hook_sees_variables_as_last_pulled(estimator, depth, now):
    seen = []

    class Asking(psflow.SessionRunHook):
        def before_run(self, run_context):
            return psflow.SessionRunArgs("w")

        def after_run(self, run_context, run_values):
            seen.append((float(run_values.results), float(run_context.session.run("w"))))

    estimator.config = estimator.config.replace(pipeline_depth=depth)
    estimator.train(endless, [Asking()], max_steps=3)
    assert [values for _, values in seen] == (now or [fetched for fetched, _ in seen])


@pytest.mark.parametrize(("given", "near"), [("los", "loss"), ("larges", "largest"), ("scoress", "scores")])
def test_an_unknown_name_is_told_with_the_nearest(tmp_path, given, near):
    def scoring(features, labels, mode):
        spec = model_fn(features, labels, mode)
        return psflow.EstimatorSpec(mode, {"scores": spec.predictions["y"]}, spec.loss, spec.train_op)

    model = psflow.Estimator(scoring, str(tmp_path / "scoring"), psflow.RunConfig(tf_random_seed=1))
    said = f"session.run fetches '{given}', which this step does not have; did you mean '{near}'"
    with pytest.raises(UsageError, match=said), MonitoredTrainingSession(model, endless) as session:
        session.run(given)


@pytest.mark.parametrize("fetches", ["lost", ["loss", "W"], 3])
def test_an_unknown_name_is_refused(estimator, fetches):
    with (
        pytest.raises(UsageError, match=r"session\.run fetches"),
        MonitoredTrainingSession(estimator, endless) as session,
    ):
        session.run(fetches)


# How it ends

STOPS = [
    (lambda session: session.request_stop("enough"), "enough"),
    (lambda session: session.request_stop(), "its session was asked to stop"),
    (lambda session: None, "its session was closed"),
]


@pytest.mark.parametrize(("stop", "reason"), STOPS)
def test_leaving_the_loop_ends_training_with_a_final_checkpoint(estimator, stop, reason):
    with MonitoredTrainingSession(estimator, endless) as session:
        session.run()
        session.run()
        stop(session)
    assert read_finished(estimator.model_dir).reason == reason
    assert steps_of(estimator) == [0, 2]
    assert estimator.get_variable_value("w") == -1.0


def test_a_request_to_stop_ends_the_loop(estimator):
    with MonitoredTrainingSession(estimator, endless) as session:
        session.run()
        assert not session.should_stop()
        session.request_stop()
        assert session.should_stop()
        session.run()
        raise AssertionError("it has left the block")
    assert steps_of(estimator) == [0, 1]


@pytest.mark.parametrize("how", [{"max_steps": 5}, {"hooks": [psflow.StopAtStepHook(last_step=5)]}])
def test_a_loop_of_too_many_runs_is_left_at_the_end_of_training(estimator, how, caplog):
    num_runs = 0
    with MonitoredTrainingSession(estimator, endless, **how) as session:
        for _ in range(100):
            session.run()
            num_runs += 1
        raise AssertionError("it has left the block")
    assert num_runs == 5
    assert steps_of(estimator)[-1] == 5
    assert "run() was called after the end of training, which leaves the loop" in caplog.text


@pytest.mark.parametrize(
    ("hook", "max_steps", "expected"),
    [
        ({"num_steps": 4}, None, 6),
        ({"last_step": 5}, 9, 5),
        ({"last_step": 5}, 4, 4),
        ({"last_step": 2}, 9, 9),  # it is reached: the hook ends training after a step
    ],
)
def test_a_stop_hook_is_a_last_step_of_the_job(hook, max_steps, expected):
    spec = psflow.TrainSpec(endless, max_steps, [psflow.StopAtStepHook(**hook)])
    found, reason = stopped_exactly(spec, start=2)
    assert found.max_steps == expected
    assert (f"has reached {expected}" in reason) == (expected != max_steps)


def test_a_hook_ends_the_loop(estimator):
    with MonitoredTrainingSession(estimator, endless, [psflow.StopAtStepHook(last_step=5)]) as session:
        assert len(losses_of(session)) == 5
    assert steps_of(estimator) == [0, 4, 5]


def test_a_session_without_a_step_saves_what_it_began_with(estimator):
    with MonitoredTrainingSession(estimator, endless):
        pass
    assert steps_of(estimator) == [0]
    assert estimator.get_variable_value("w") == 1.0


class Telling(psflow.SessionRunHook):
    def __init__(self):
        self.heard = []

    def begin(self):
        self.heard.append("begin")

    def after_create_session(self, session, coord):
        self.heard.append("created")

    def before_run(self, run_context):
        self.heard.append("before")

    def after_run(self, run_context, run_values):
        self.heard.append("after")

    def end(self, session):
        self.heard.append("end")


@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_hooks_are_told(estimator, num_steps):
    telling = Telling()
    with MonitoredTrainingSession(estimator, endless, [telling]) as session:
        assert telling.heard == ["begin", "created"]
        for _ in range(num_steps):
            session.run()
    assert telling.heard == ["begin", "created", *["before", "after"] * num_steps, "end"]


def test_hooks_are_not_told_of_the_end_after_an_exception(estimator):
    telling = Telling()
    with pytest.raises(ZeroDivisionError, match="as planned"):
        fail_after(MonitoredTrainingSession(estimator, endless, [telling]), "loss")
    assert telling.heard == ["begin", "created", "before", "after"]
    assert read_finished(estimator.model_dir) is None


@pytest.mark.parametrize("call", ["begin", "after_create_session", "before_run", "after_run", "end"])
def test_an_error_of_a_hook_comes_out_and_the_model_dir_is_free(estimator, call):
    def fail(*arguments):
        raise ZeroDivisionError("as planned")

    failing = psflow.SessionRunHook()
    setattr(failing, call, fail)
    session = MonitoredTrainingSession(estimator, endless, [failing])
    with pytest.raises(ZeroDivisionError, match="as planned"), session:
        session.run()
    estimator.train(endless, max_steps=2)
    assert steps_of(estimator)[-1] == 2


# Recovery


def test_the_next_session_goes_on_from_the_latest_checkpoint(estimator):
    saved = 4
    is_saved = threading.Event()

    class Listener(psflow.CheckpointSaverListener):
        def after_save(self, session, global_step):
            if global_step == saved:
                is_saved.set()

    class Waiting(psflow.SessionRunHook):
        def after_run(self, run_context, run_values):
            if run_context.session.global_step > saved:  # checkpoints are written beside training
                assert is_saved.wait(HANG_SECS)

    with pytest.raises(ZeroDivisionError, match="as planned"):
        fail_after(MonitoredTrainingSession(estimator, endless, [Waiting()], None, [Listener()]), *["loss"] * 6)
    with MonitoredTrainingSession(estimator, endless, max_steps=saved + 2) as session:
        assert session.global_step == saved
        assert session.run(["w", "global_step"]) == [1.0 - saved, saved + 1]
        losses_of(session)
    assert estimator.get_variable_value("w") == 1.0 - saved - 2


def test_it_does_what_train_does(estimator, tmp_path):
    with MonitoredTrainingSession(estimator, examples, max_steps=9) as session:
        losses_of(session)
    other = psflow.Estimator(model_fn, str(tmp_path / "other"), estimator.config.replace(model_dir=None))
    other.train(examples, max_steps=9)
    assert steps_of(estimator) == steps_of(other)
    assert estimator.get_variable_value("w") == other.get_variable_value("w")


def test_a_session_may_be_entered_again(estimator):
    session = MonitoredTrainingSession(estimator, endless)
    for last in (2, 4):
        with session:
            session.run()
            session.run()
        assert steps_of(estimator)[-1] == last


def test_two_sessions_do_not_share_a_model_dir(estimator):
    other = MonitoredTrainingSession(estimator, endless)
    with MonitoredTrainingSession(estimator, endless) as session:
        session.run()
        with pytest.raises(ModelDirError):
            other.__enter__()
        session.run()
    assert steps_of(estimator)[-1] == 2


# Wrong use


@pytest.mark.parametrize(
    "use",
    [lambda s: s.run(), lambda s: s.should_stop(), lambda s: s.request_stop(), lambda s: s.global_step],
)
def test_a_session_is_used_inside_with(estimator, use):
    session = MonitoredTrainingSession(estimator, endless)
    with pytest.raises(UsageError, match="is not entered; use it inside `with session:`"):
        use(session)
    assert estimator.latest_checkpoint() is None


def test_a_session_that_was_left_makes_no_further_step(estimator):
    with MonitoredTrainingSession(estimator, endless) as session:
        session.run()
    assert session.should_stop()
    with pytest.raises(UsageError, match="is not entered"):
        session.run()
    with session:
        assert not session.should_stop()
        session.run()
    assert session.should_stop()


def test_a_session_is_entered_once_at_a_time(estimator):
    with MonitoredTrainingSession(estimator, endless) as session:
        with pytest.raises(UsageError, match="is already entered; leave it first, or make another one"):
            session.__enter__()
        session.run()


WRONG = [
    (
        lambda e: MonitoredTrainingSession(e, endless, [3]),
        UsageError,
        r"hooks\[0\] should be a SessionRunHook, got int 3",
    ),
    (lambda e: MonitoredTrainingSession(e, endless, max_steps=0), UsageError, "max_steps should be greater than 0"),
    (lambda e: MonitoredTrainingSession(e, 3), UsageError, "input_fn should be callable"),
    (lambda e: MonitoredTrainingSession(e, lambda: iter(())), InputError, "returned no batch"),
]


@pytest.mark.parametrize(("make", "kind", "said"), WRONG)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(estimator, make, kind, said):
    with pytest.raises(kind, match=said):
        make(estimator)
    assert estimator.latest_checkpoint() is None


def test_a_nan_is_raised_by_the_run_that_computed_it(estimator):
    def batches():
        for x in ([0, 1], [np.nan, 1]):
            yield {"x": np.float32(x)}, np.zeros(2, np.float32)

    with MonitoredTrainingSession(estimator, batches, non_finite="keep") as session:
        assert session.run() == 0.5
        with pytest.raises(NanLossError):
            session.run()
    assert steps_of(estimator) == [0, 1]  # catching it ends training with the last good values
