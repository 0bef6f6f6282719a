from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.roles.events import Checkpoint, Evaluation, Export, Metrics, RecordedEvent
from psflow.tasks.exports.exported import Exported, Registration
from psflow.tasks.owners import OWNER
from psflow.tasks.tracking import tracker as tracker_module
from psflow.tasks.tracking import writes as writes_module
from psflow.tasks.tracking.tracker import Tracker
from psflow.tasks.tracking.writes import MAX_ATTEMPTS, PendingWrites, keep_pending, read_pending
from tests.limits import HANG_SECS
from tests.tasks.waiting import wait_until

OpenTracker = Callable[..., Tracker]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "WRITE_EVERY_SECS", 0.01)
    monkeypatch.setattr(tracker_module, "MAX_BACKOFF_SECS", 0.02)


def metrics(step: int, **values: float) -> Metrics:
    return Metrics(step, values, role="chief-0", number=step)


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(step, f"/model/checkpoints/step_{step:08d}")


def evaluation(step: int, name: str | None = None, **values: float) -> Evaluation:
    return Evaluation(step, {**values, "global_step": step}, 1.0, name)


def export(path: Path, step: int, version: int, *, best: bool = True) -> Export:
    return Export("best", step, version, str(path), best, {"accuracy": 0.9})


def send(tracker: Tracker, *events: RecordedEvent, status: Any = "FINISHED", is_whole: bool = True) -> None:
    for event in events:
        tracker.handle(event)
        if isinstance(event, Export):
            tracker.register(event)
    assert tracker.close(status, timeout_secs=200) == is_whole, tracker.statistics()


def curve(store: str, run_id: str, key: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in MlflowClient(store, store).get_metric_history(run_id, key)]


def test_run_says_what_the_job_is_about(store: str, open_tracker: OpenTracker) -> None:
    tracker = open_tracker(
        params={"train.max_steps": 100, "model": "dnn"},
        tags={"team": "a"},
        datasets=[
            {"name": "digits", "context": "train", "digest": "d" * 64, "schema": {"x": "f4"}, "source": "digits"}
        ],
    )
    send(tracker, metrics(1, loss=0.5))
    run = MlflowClient(store, store).get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.end_time is not None
    assert run.info.run_name == "first"
    assert run.data.params == {"train.max_steps": "100", "model": "dnn"}
    assert run.data.tags["team"] == "a"
    assert [(i.dataset.name, i.tags[0].value) for i in run.inputs.dataset_inputs] == [("digits", "train")]


def test_artifacts_lie_beside_the_store(store: str, tmp_path: Path, open_tracker: OpenTracker, exported: Path) -> None:
    send(open_tracker(), export(exported, 10, 1))
    assert list((tmp_path / "mlartifacts").rglob("MLmodel"))


def test_more_points_than_one_call_takes(store: str, open_tracker: OpenTracker) -> None:
    tracker = open_tracker()
    send(tracker, *[metrics(step, loss=1 / step, rate=step) for step in range(1, 701)])
    assert [step for step, _ in curve(store, tracker.run_id, "loss")] == list(range(1, 701))
    assert len(curve(store, tracker.run_id, "rate")) == 700


def test_no_point_twice_after_a_resume(store: str, open_tracker: OpenTracker) -> None:
    first = open_tracker()
    send(first, metrics(10, loss=1), metrics(20, loss=2), evaluation(20, accuracy=0.5), status="KILLED")
    again = open_tracker(run_id=first.run_id)
    assert MlflowClient(store, store).get_run(first.run_id).info.status == "RUNNING"
    send(again, metrics(20, loss=7), evaluation(20, accuracy=0.5), metrics(30, loss=3), evaluation(10, accuracy=0.4))
    assert again.run_id == first.run_id
    assert curve(store, first.run_id, "loss") == [(10, 1), (20, 2), (30, 3)]
    assert sorted(curve(store, first.run_id, "eval/accuracy")) == [(10, 0.4), (20, 0.5)]


def test_a_resumed_run_knows_how_far_training_has_come(store: str, open_tracker: OpenTracker) -> None:
    first = open_tracker()
    assert first.newest_step == -1
    send(first, metrics(10, loss=1), metrics(12, **{"role/worker-0/rss_mb": 1.0}), evaluation(20, accuracy=0.5))
    MlflowClient(store, store).log_metric(first.run_id, "mine", 1.0, step=1000)
    again = open_tracker(run_id=first.run_id)
    assert again.newest_step == 12
    again.handle(metrics(14, loss=2))  # which MLflow has not taken in time
    send(again, evaluation(30, accuracy=0.5))
    assert again.newest_step == 14


def test_an_evaluation_of_a_step_that_was_trained_anew_is_a_second_point(store: str, open_tracker: OpenTracker) -> None:
    first = replace(evaluation(20, accuracy=0.5), checkpoint_saved_at=100.0, time=101.0)
    again = replace(evaluation(20, accuracy=0.7), checkpoint_saved_at=200.0, time=150.0)  # by a clock that is slow
    tracker = open_tracker()
    send(tracker, first, first, status="KILLED")
    for _ in range(2):
        send(open_tracker(run_id=tracker.run_id), first, again, again)
    assert curve(store, tracker.run_id, "eval/accuracy") == [(20, 0.5), (20, 0.7)]
    assert MlflowClient(store, store).get_run(tracker.run_id).data.metrics["eval/accuracy"] == 0.7


def test_changed_parameter_of_a_resumed_run_is_a_tag(store: str, open_tracker: OpenTracker) -> None:
    first = open_tracker(params={"max_steps": 100})
    send(first)
    send(open_tracker(run_id=first.run_id, params={"max_steps": 200, "new": 1}))
    data = MlflowClient(store, store).get_run(first.run_id).data
    assert data.params == {"max_steps": "100", "new": "1"}
    assert data.tags["psflow.param.max_steps"] == "200"


def test_a_description_is_renewed_unless_the_user_changed_it(store: str, open_tracker: OpenTracker) -> None:
    client = MlflowClient(store, store)
    note = "mlflow.note.content"
    first = open_tracker(tags={note: "first"})
    send(first)
    for given, expected in (("second", "second"), ("third", "mine"), ("fourth", "mine")):
        send(open_tracker(run_id=first.run_id, tags={note: given}))
        assert client.get_run(first.run_id).data.tags[note] == expected
        client.set_tag(first.run_id, note, "mine")


def test_what_is_not_finite_is_nan(store: str, open_tracker: OpenTracker) -> None:
    tracker = open_tracker()
    send(tracker, metrics(1, loss=math.inf, norm=math.nan))
    assert math.isnan(curve(store, tracker.run_id, "loss")[0][1])
    assert math.isnan(curve(store, tracker.run_id, "norm")[0][1])


def test_checkpoint_is_an_external_model_that_its_evaluation_links_to(store: str, open_tracker: OpenTracker) -> None:
    tracker = open_tracker()
    told = [checkpoint(100), evaluation(100, loss=0.2), evaluation(100, "test", **{"label/mean": 4.5})]
    send(tracker, *told, *told)
    client = MlflowClient(store, store)
    run = client.get_run(tracker.run_id)
    [model] = client.search_logged_models([run.info.experiment_id])
    assert model.status == "READY"
    assert model.tags["psflow.step"] == "100"
    assert model.tags["psflow.path"].endswith("step_00000100")
    assert {m.key: (m.step, m.value) for m in model.metrics} == {
        "eval/loss": (100, 0.2),
        "eval_test/label/mean": (100, 4.5),
    }
    assert [(o.model_id, o.step) for o in run.outputs.model_outputs] == [(model.model_id, 100)]


def test_export_is_a_registered_version_and_best_moves(store: str, open_tracker: OpenTracker, exported: Path) -> None:
    tracker = open_tracker()
    told = [export(exported, 100, 1), export(exported, 200, 2), export(exported, 300, 3, best=False)]
    send(tracker, *told)
    client = MlflowClient(store, store)
    assert client.get_model_version_by_alias("psflow-digits", "best").version == 2
    assert tracker.best is not None
    assert (tracker.best.model_uri, tracker.best.global_step) == ("models:/psflow-digits/2", 200)
    version = client.get_model_version("psflow-digits", "2")
    assert version.run_id == tracker.run_id
    assert (version.tags["psflow.step"], version.tags["eval.accuracy"]) == ("200", "0.9")


def test_an_export_is_recorded_at_once_and_registered_on_request(
    store: str, open_tracker: OpenTracker, exported: Path
) -> None:
    tracker = open_tracker()
    tracker.handle(export(exported, 0, 1))
    tracker.handle(export(exported, 100, 2))
    wait_until(lambda: tracker.best is not None and tracker.best.global_step == 100, HANG_SECS)
    client = MlflowClient(store, store)
    assert not client.search_model_versions("name = 'psflow-digits'")
    assert tracker.best is not None
    assert tracker.best.version is None
    tracker.register(export(exported, 100, 2))
    send(tracker)
    [version] = client.search_model_versions("name = 'psflow-digits'")
    assert version.tags["psflow.step"] == "100"
    assert client.get_registered_model("psflow-digits").aliases == {"best": version.version}
    assert tracker.best.model_uri == f"models:/psflow-digits/{version.version}"


def test_a_version_leads_back_to_its_run_and_checkpoint(store: str, open_tracker: OpenTracker, exported: Path) -> None:
    tracker = open_tracker()
    send(tracker, checkpoint(100), export(exported, 100, 1))
    client = MlflowClient(store, store)
    version = client.get_model_version("psflow-digits", "1")
    assert version.tags["psflow.checkpoint"].endswith("checkpoints/step_00000100")
    assert client.get_logged_model(version.tags["psflow.checkpoint_model"]).tags["psflow.step"] == "100"
    for told in (tracker.run_id, "step_00000100", str(exported)):
        assert told in version.description


def test_export_reported_again_after_a_resume_is_recorded_once(
    store: str, open_tracker: OpenTracker, exported: Path
) -> None:
    first = open_tracker()
    told = [export(exported, 100, 1), export(exported, 200, 2)]
    send(first, *told, status="KILLED")
    again = open_tracker(run_id=first.run_id)
    send(again, *told)
    client = MlflowClient(store, store)
    assert len(client.search_model_versions("name = 'psflow-digits'")) == 2
    assert len(client.search_logged_models([client.get_run(first.run_id).info.experiment_id])) == 2
    assert client.get_model_version_by_alias("psflow-digits", "best").version == 2
    assert again.best == first.best


def test_a_version_that_was_deleted_stays_deleted_after_a_resume(
    store: str, open_tracker: OpenTracker, exported: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = open_tracker()
    told = [export(exported, 100, 1), export(exported, 200, 2), export(exported, 300, 3)]
    send(first, *told, status="KILLED")
    client = MlflowClient(store, store)
    for version in ("1", "3"):
        client.delete_model_version("psflow-digits", version)
    again = open_tracker(run_id=first.run_id)
    send(again, *told, export(exported, 400, 4, best=False))
    assert {v.version: v.tags["psflow.step"] for v in client.search_model_versions("name = 'psflow-digits'")} == {
        2: "200",
        4: "400",
    }
    assert again.best is not None
    assert again.best.version is None
    assert again.best.model_uri.startswith("models:/m-")
    assert [text for text in caplog.messages if "deleted" in text] == [
        "versions 1, 3 of psflow-digits were deleted in MLflow and are not registered again; "
        "psflow export --model-dir DIR --checkpoint STEP does that"
    ]


def test_a_version_deleted_before_it_was_noted_or_under_another_name_is_registered(
    store: str, open_tracker: OpenTracker, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_tracker()
    with monkeypatch.context() as killed:
        killed.setattr(MlflowClient, "set_logged_model_tags", lambda *given: None)  # by then its process was gone
        send(first, export(exported, 100, 1), status="KILLED")
    send(open_tracker(run_id=first.run_id), export(exported, 100, 1), status="KILLED")
    client = MlflowClient(store, store)
    client.delete_model_version("psflow-digits", "1")
    send(open_tracker(run_id=first.run_id), export(exported, 100, 1))
    assert len(client.search_model_versions("name = 'psflow-digits'")) == 0
    send(open_tracker(run_id=first.run_id, registered_model="other"), export(exported, 100, 1))
    assert len(client.search_model_versions("name = 'other'")) == 1


def test_who_asks_for_an_export_has_its_deleted_version_registered_again(
    store: str, open_tracker: OpenTracker, exported: Path
) -> None:
    tracker = open_tracker()
    send(tracker, export(exported, 100, 1))
    client = MlflowClient(store, store)
    client.delete_model_version("psflow-digits", "1")
    asked = Exported("best", 1, str(exported), 100, 0.0)
    for _ in range(2):
        assert Registration(store, tracker.run_id, "psflow-digits").register(asked, {}).version == "2"
    send(open_tracker(run_id=tracker.run_id), export(exported, 100, 1))
    assert [v.version for v in client.search_model_versions("name = 'psflow-digits'")] == [2]


def test_an_export_that_was_registered_during_the_training_is_not_registered_again(
    store: str, open_tracker: OpenTracker, exported: Path
) -> None:
    tracker = open_tracker()
    asked = Exported("best", 1, str(exported), 100, 0.0)
    assert Registration(store, tracker.run_id, "psflow-digits").register(asked, {}).version == "1"
    send(tracker, export(exported, 100, 1))
    assert [v.version for v in MlflowClient(store, store).search_model_versions("name = 'psflow-digits'")] == [1]


def test_an_alias_left_behind_by_a_kill_is_set_right_by_the_next_attempt(
    store: str, open_tracker: OpenTracker, exported: Path
) -> None:
    first = open_tracker()
    send(first, export(exported, 100, 1), export(exported, 200, 2), status="KILLED")
    moved_back = export(exported, 100, 1)  # best.json says so; the alias was to follow
    send(open_tracker(run_id=first.run_id), moved_back)
    assert MlflowClient(store, store).get_model_version_by_alias("psflow-digits", "best").version == 1


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """While it holds True, MLflow takes no writes; reads it answers, as a store that is locked or faulty may."""
    flag = [False]
    for name in ("log_batch", "set_tag", "create_logged_model", "set_terminated"):
        monkeypatch.setattr(MlflowClient, name, unless(flag, getattr(MlflowClient, name)))
    return flag


def unless(away: list[bool], method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if away[0]:
            raise MlflowException("no route to host")
        return method(*args, **kwargs)

    return call


def test_events_are_kept_while_mlflow_is_away(store: str, open_tracker: OpenTracker, away: list[bool]) -> None:
    tracker = open_tracker()
    away[0] = True
    tracker.handle(metrics(1, loss=1))
    tracker.handle(checkpoint(1))
    wait_until(lambda: tracker.statistics()["failures"] >= 2 * MAX_ATTEMPTS)
    away[0] = False
    send(tracker, metrics(2, loss=2))
    assert curve(store, tracker.run_id, "loss") == [(1, 1), (2, 2)]
    assert tracker.statistics()["dropped"] == 0


def test_close_does_not_wait_for_ever(
    open_tracker: OpenTracker, away: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    tracker = open_tracker()
    away[0] = True
    tracker.handle(metrics(1, loss=1))
    tracker.handle(checkpoint(1))
    wait_until(lambda: bool(tracker.statistics()["failures"]))
    assert not tracker.close(timeout_secs=0.1)
    assert tracker.statistics()["pending"] == tracker.num_lost == 2
    assert "no route to host" in tracker.statistics()["last_error"]
    assert "is incomplete: 2 events were not written; last error: " in caplog.messages[-1]


def test_a_store_that_does_not_answer_is_said_to_be_silent(
    open_tracker: OpenTracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers, is_asked = threading.Event(), threading.Event()

    def hang(*args: Any, **kwargs: Any) -> None:
        is_asked.set()
        answers.wait(HANG_SECS)

    tracker = open_tracker()
    monkeypatch.setattr(MlflowClient, "log_batch", hang)
    monkeypatch.setattr(writes_module, "MIN_SILENCE_SECS", 0.0)
    monkeypatch.setattr(tracker_module, "PATIENCE_SECS", 0.01)
    tracker.handle(metrics(1, loss=1))
    assert is_asked.wait(HANG_SECS)
    assert not tracker.close(timeout_secs=0.1)
    answers.set()
    first, last = (message.partition(" events ")[2] for message in caplog.messages)
    assert first == "were not written, retrying for up to 0 s; no answer for 0 s"
    assert last == "were not written; no answer for 0 s"


def test_a_run_that_lacks_nothing_but_its_end_says_so(
    open_tracker: OpenTracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = open_tracker()
    monkeypatch.setattr(MlflowClient, "set_terminated", unless([True], MlflowClient.set_terminated))
    assert not tracker.close(timeout_secs=0.1)
    assert "is incomplete: its end was not written; last error: " in caplog.messages[-1]


def test_a_process_that_has_lost_the_run_leaves_the_tag_of_its_new_owner(
    store: str, open_tracker: OpenTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = open_tracker()
    MlflowClient(store, store).set_tag(lost.run_id, OWNER, "the new owner")
    monkeypatch.setattr(MlflowClient, "log_batch", unless([True], MlflowClient.log_batch))
    lost.handle(metrics(1, loss=1))  # is refused, while the store takes other writes
    wait_until(lambda: bool(lost.statistics()["dropped"]))
    assert MlflowClient(store, store).get_run(lost.run_id).data.tags[OWNER] == "the new owner"


@pytest.mark.parametrize("newest", [2, 1])
def test_an_export_that_newer_ones_replace_before_it_is_written_is_not_lost(
    newest: int, open_tracker: OpenTracker, tmp_path: Path
) -> None:
    (tmp_path / "best" / str(newest)).mkdir(parents=True)
    missing = 1 if newest == 2 else 3  # the newest one was removed by someone else
    send(open_tracker(), export(tmp_path / "best" / str(missing), 100, missing), is_whole=newest == 2)


def test_event_that_can_never_be_written_is_dropped(store: str, open_tracker: OpenTracker, tmp_path: Path) -> None:
    tracker = open_tracker()
    tracker.handle(export(tmp_path / "gone", 5, 1))
    send(tracker, metrics(2, loss=2), is_whole=False)
    assert tracker.statistics()["dropped"] == tracker.num_lost == 1
    assert MlflowClient(store, store).get_run(tracker.run_id).info.status == "FINISHED"
    assert tracker.best is None
    assert curve(store, tracker.run_id, "loss") == [(2, 2)]


def test_one_bad_point_takes_no_other_with_it(
    store: str, open_tracker: OpenTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_batch = MlflowClient.log_batch

    def refuse_37(client: MlflowClient, run_id: str, metrics: Any = (), **rest: Any) -> Any:
        if any(point.step == 37 for point in metrics):
            raise MlflowException("no such point", INVALID_PARAMETER_VALUE)
        return log_batch(client, run_id, metrics=metrics, **rest)

    tracker = open_tracker()
    monkeypatch.setattr(MlflowClient, "log_batch", refuse_37)
    send(tracker, *[metrics(step, loss=step) for step in range(1, 101)], is_whole=False)
    assert [step for step, _ in curve(store, tracker.run_id, "loss")] == [s for s in range(1, 101) if s != 37]
    assert tracker.statistics()["dropped"] == 1


def test_what_is_kept_has_an_end(
    store: str, open_tracker: OpenTracker, away: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker_module, "MAX_POINTS_KEPT", 20)
    monkeypatch.setattr(tracker_module, "MAX_POINTS_PER_CALL", 1)
    tracker = open_tracker()
    away[0] = True
    for step in range(1, 101):
        tracker.handle(metrics(step, loss=1, rate=2))
    tracker.handle(checkpoint(100))
    assert 11 <= tracker.statistics()["pending"] <= 13
    dropped = tracker.statistics()["dropped"]
    assert dropped >= 89
    away[0] = False
    wait_until(lambda: not tracker.statistics()["pending"])
    send(tracker, metrics(101, loss=1), is_whole=False)
    assert tracker.statistics()["dropped"] == dropped
    assert len(curve(store, tracker.run_id, "loss")) == 101 - dropped
    assert len(MlflowClient(store, store).search_logged_models(["1"])) == 1


def test_run_that_was_not_recorded_is_found_again(store: str, open_tracker: OpenTracker) -> None:
    tags = {"psflow.job_id": "a1"}
    client = MlflowClient(store, store)
    experiment = client.create_experiment("digits")
    killed = client.create_run(experiment, tags=tags).info.run_id
    again = open_tracker(tags=tags)
    other = open_tracker(tags={"psflow.job_id": "b2"})
    assert again.run_id == killed != other.run_id
    send(again)
    send(other)
    assert {run.info.status for run in client.search_runs([experiment])} == {"FINISHED"}


def test_run_has_the_id_of_its_job_from_its_first_moment(
    store: str, open_tracker: OpenTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MlflowClient, "log_batch", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            open_tracker(tags={"psflow.job_id": "a1"})
    client = MlflowClient(store, store)
    experiment = client.get_experiment_by_name("digits")
    assert experiment is not None
    assert len(client.search_runs([experiment.experiment_id])) == 1


def test_password_is_in_no_log(
    open_tracker: OpenTracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ValueError("http://bob:s3cret@host/api refused s3://key:s3cret@bucket/x?signature=s3cret")

    monkeypatch.setattr(MlflowClient, "create_logged_model", refuse)
    tracker = open_tracker()
    send(tracker, Checkpoint(1, "s3://key:s3cret@bucket/step_1"), is_whole=False)
    assert "s3://bucket/step_1" in caplog.text
    assert "http://host/api refused s3://bucket/x" in caplog.text
    assert "s3cret" not in caplog.text + str(tracker.statistics())


def test_names_that_mlflow_refuses(store: str, open_tracker: OpenTracker) -> None:
    tracker = open_tracker(params={"a(b)": 1})
    send(tracker, metrics(1, **{"loss (mean)": 1.0}))
    assert curve(store, tracker.run_id, "loss _mean_") == [(1, 1)]


def test_run_of_another_store(open_tracker: OpenTracker) -> None:
    with pytest.raises(ConfigError, match=r"run 0123 of this job is not in sqlite.*set MLFLOW_TRACKING_URI"):
        open_tracker(run_id="0123")


def test_close_twice_and_nothing_is_said(open_tracker: OpenTracker, capfd: pytest.CaptureFixture[str]) -> None:
    tracker = open_tracker()
    send(tracker, metrics(1, loss=1))
    assert tracker.close("FAILED")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("status", ["FAILED", "KILLED"])
def test_how_a_run_that_broke_off_ended_is_known_first_whatever_waits(
    store: str, open_tracker: OpenTracker, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    tracker = open_tracker()
    written = MlflowClient.log_batch
    statuses = []

    def note(client: MlflowClient, run_id: str, *args: Any, **kwargs: Any) -> Any:
        statuses.append(client.get_run(run_id).info.status)
        return written(client, run_id, *args, **kwargs)

    monkeypatch.setattr(MlflowClient, "log_batch", note)
    monkeypatch.setattr(tracker_module, "WRITE_EVERY_SECS", 200.0)
    send(tracker, metrics(1, loss=1), status=status)
    assert statuses[-1] == status
    assert curve(store, tracker.run_id, "loss") == [(1, 1)]


def test_what_mlflow_did_not_take_is_kept_and_written_once(
    tmp_path: Path, store: str, open_tracker: OpenTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*args: Any, **kwargs: Any) -> None:
        raise MlflowException("nobody answers")

    model_dir = str(tmp_path)
    first = open_tracker(tags={"psflow.job_id": "a1"})
    with monkeypatch.context() as away:
        for name in ("log_batch", "set_tag", "set_terminated"):
            away.setattr(MlflowClient, name, absent)
        for event in (metrics(1, loss=math.nan, rate=2), evaluation(1, accuracy=0.5), metrics(2, loss=3)):
            first.handle(event)
        first.put_tags({"psflow.lost_steps": "3-4"})
        first.put_file("plots/roc.png", b"png")
        assert not first.close("KILLED", timeout_secs=0.2)
    keep_pending(model_dir, first.run_id, first.waiting())
    again = open_tracker(tags={"psflow.job_id": "a1"})
    kept = read_pending(model_dir, again.run_id)
    assert {(m.step, name) for m in kept.metrics for name in m.values} == {(1, "loss"), (1, "rate"), (2, "loss")}
    for _ in range(2):
        again.take_back(kept)
    assert again.tags["psflow.lost_steps"] == "3-4"
    send(again)
    assert curve(store, again.run_id, "rate") == [(1, 2)]
    assert [step for step, _ in curve(store, again.run_id, "loss")] == [1, 2]
    keep_pending(model_dir, again.run_id, again.waiting())
    assert read_pending(model_dir, again.run_id) == PendingWrites([])
    client = MlflowClient(store, store)
    assert client.get_run(again.run_id).data.tags["psflow.lost_steps"] == "3-4"
    assert [file.path for file in client.list_artifacts(again.run_id, "plots")] == ["plots/roc.png"]
