"""Reports of a job in log, terminal, Prefect and MLflow."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.flows.parameters.train import parse_parameters
from psflow.flows.reporting import watch as module
from psflow.flows.reporting.artifacts import PageLinks
from psflow.flows.reporting.watch import Watch, Watched
from psflow.ps_runtime.roles.events import (
    Checkpoint,
    Evaluation,
    Export,
    FirstStep,
    LogMessage,
    Metrics,
    PsListening,
    RecordedEvent,
    Restored,
    RoleLost,
    RoleStarted,
    SummaryFile,
)
from psflow.ps_runtime.transport.listeners import Address

CONF = {
    "experiment": "t",
    "model": {"name": "m:line"},
    "input": {"train": {"name": "m:points"}, "eval": {"name": "m:points"}},
    "train": {"max_steps": 600},
}
CHECKPOINT = Checkpoint(300, "c/300", role="chief-0")
EVALUATION = Evaluation(300, {"accuracy": 0.5}, 1.0, role="evaluator-0")
METRICS = Metrics(400, {"loss": 0.25}, role="chief-0")
EXPORT = Export("best", 300, 1, "export/best/1", True, {"accuracy": 0.5}, role="evaluator-0")
LOG = LogMessage(20, "mine", "said", role="worker-0", time=0.0)
LISTENING = PsListening(Address("h", 1, None, ""), role="ps-0")


class Seen:
    """Stands for Prefect, MLflow and the plots: what each was told."""

    def __init__(self) -> None:
        self.tracked: list[RecordedEvent] = []
        self.registered: list[RecordedEvent] = []
        self.tags: list[dict[str, str]] = []
        self.known_tags: dict[str, str] = {}
        """Of the MLflow run, before this attempt."""
        self.artifacts: list[tuple[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.closed: dict[str, Any] = {}
        self.plotted: list[str] = []
        self.has_progress = threading.Event()
        self.tracker: Any = SimpleNamespace(
            handle=self.tracked.append,
            register=self.registered.append,
            put_tags=self.tags.append,
            put_file=self.files.__setitem__,
            run_id="r1",
            tags=self.known_tags,
            newest_step=-1,
            page="http://host/r1",
        )

    def make_artifacts(self, name: str) -> Any:
        def take(kind: str) -> Callable[..., None]:
            return lambda *given, **named: self.artifacts.append((kind, given or named))

        def progress(*given: Any) -> None:
            self.artifacts.append(("progress", given))
            self.has_progress.set()

        return SimpleNamespace(
            link=take("link"), label=take("label"), table=take("table"), progress=progress, close=lambda secs: None
        )

    def make_plotter(self, *given: Any) -> Any:
        return SimpleNamespace(
            handle=lambda event: self.plotted.append(type(event).__name__),
            restore=lambda event: self.plotted.append(f"earlier {type(event).__name__}"),
            prepare=lambda: self.plotted.append("prepared"),
            close=lambda secs, **how: self.closed.update(how),
        )


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Seen:
    seen = Seen()
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module, "Artifacts", seen.make_artifacts)
    monkeypatch.setattr(module, "Plotter", seen.make_plotter)
    monkeypatch.setattr(module, "SLICE_SECS", 0.01)
    return seen


def watch(
    seen: Seen,
    tmp_path: Path,
    *past: RecordedEvent,
    plots: bool = True,
    on_disk: Any = None,
    register_each: bool = False,
) -> Watch:
    job: Any = SimpleNamespace(model_dir=str(tmp_path), attempt=1, train_spec=SimpleNamespace(max_steps=600))
    conf = {**CONF, "plots": plots, "best": {"metric": "accuracy", "mode": "max", "register_each": register_each}}
    links = PageLinks("f1", None, "http://host/dask", str(tmp_path), "m")
    watched = Watched(job, parse_parameters(conf, {}), None, links, on_disk or (lambda: past))
    return Watch(watched, seen.tracker, logging.getLogger("flow"))


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "flow"]


def test_the_same_line_for_the_log_prefect_and_mlflow(
    seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with watch(seen, tmp_path) as watching:
        for event in (CHECKPOINT, EVALUATION, METRICS):
            watching.handle(event)
        assert seen.has_progress.wait(200)
    line = "step 400/600 (67 %), loss 0.25, evaluated 300: accuracy 0.5"
    assert messages(caplog)[-1] == line
    assert seen.tags[-1] == {"psflow.progress": line, "psflow.reached_step": "400"}
    assert [given for kind, given in seen.artifacts if kind == "progress"][-1] == (pytest.approx(66.67, abs=0.01), line)


def test_plots_are_prepared_once_a_replica_has_made_a_step(seen: Seen, tmp_path: Path) -> None:
    with watch(seen, tmp_path) as watching:
        watching.handle(RoleStarted("host"))
        assert seen.plotted == []
        watching.handle(FirstStep())
        assert seen.plotted == ["prepared"]


@pytest.mark.parametrize("register_each", [False, True])
def test_exports_are_registered_as_they_come_only_on_request(seen: Seen, tmp_path: Path, register_each: bool) -> None:
    earlier = replace(EXPORT, step=100, role="")
    with watch(seen, tmp_path, earlier, register_each=register_each) as watching:
        watching.handle(EXPORT)
        watching.handle(CHECKPOINT)
    assert seen.tracked[:3] == [earlier, EXPORT, CHECKPOINT]
    assert seen.registered == ([earlier, EXPORT] if register_each else [])


def test_what_happens_seldom_is_logged_and_everything_is_recorded(
    seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with watch(seen, tmp_path) as watching:
        for event in (CHECKPOINT, METRICS, EVALUATION, LISTENING):
            watching.handle(event)
    assert messages(caplog)[:2] == ["saved checkpoint of step 300 in c/300", "evaluation of step 300: accuracy 0.5"]
    *told, system = seen.tracked
    assert told == [CHECKPOINT, METRICS, EVALUATION]
    assert isinstance(system, Metrics)
    assert system.values["system/cpu_utilization_percentage"] >= 0
    tables = [given for kind, given in seen.artifacts if kind == "table"]
    assert tables[0][1] == [{"step": 300, "evaluation": "eval", "accuracy": 0.5}]


def test_a_summary_that_is_a_file_is_written_and_not_shown(
    seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with watch(seen, tmp_path) as watching:
        watching.handle(SummaryFile(400, "summaries/w.json", "eyJhIjogMX0=", role="chief-0"))
    assert seen.files == {"summaries/w.json": b'{"a": 1}'}
    assert seen.plotted == []
    assert len(messages(caplog)) == 1


def test_steps_that_training_has_rolled_back_are_reported(
    seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with watch(seen, tmp_path, CHECKPOINT) as watching:
        watching.handle(Restored(300, 0.5, role="chief-0"))
        watching.handle(METRICS)
        watching.handle(RoleLost("its Dask worker tcp://h:1 was lost", True, role="ps-0"))
        watching.handle(Restored(300, 0.5, role="chief-0"))
        watching.handle(RoleLost("its Dask worker tcp://h:2 was lost", role="worker-0"))
        watching.handle(Metrics(320, {}))
        watching.handle(Restored(300, 0.5, role="chief-0"))
    assert messages(caplog) == [
        "ps-0 was lost and restarts: its Dask worker tcp://h:1 was lost; all roles roll back to the last checkpoint",
        "training continues from step 300; steps 301-400 are lost and repeated",
        "worker-0 was lost and restarts: its Dask worker tcp://h:2 was lost; no step is lost",
        "training continues from step 300; steps 301-320 are lost and repeated",
        "step 300/600 (50 %), loss 0.25, restarts 2, lost steps 120",
    ]
    assert [tags["psflow.lost_steps"] for tags in seen.tags if "psflow.lost_steps" in tags] == [
        "301-400",
        "301-400, 301-320",
    ]
    [figures] = [event.values for event in seen.tracked if isinstance(event, Metrics) and "restarts" in event.values]
    assert (figures["restarts"], figures["lost_steps"]) == (2, 120)


def test_what_a_role_that_is_lost_at_the_very_end_has_written_is_recorded(
    seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE_SECS", 200)
    past: list[RecordedEvent] = []
    with watch(seen, tmp_path, on_disk=lambda: past) as watching:
        past.append(EVALUATION)
        watching.handle(RoleLost("its Dask worker tcp://h:1 was lost", role="evaluator-0"))
    assert EVALUATION in seen.tracked


def test_the_lost_steps_of_a_resumed_attempt_are_named_beside_those_of_the_ones_before(
    seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen.known_tags["psflow.lost_steps"] = "101-120, 101-110"
    with watch(seen, tmp_path) as watching:
        watching.handle(METRICS)
        watching.handle(Restored(300, 0.5, role="chief-0"))
    told = [tags["psflow.lost_steps"] for tags in seen.tags if "psflow.lost_steps" in tags]
    assert told == ["101-120, 101-110, 301-400"]
    assert messages(caplog)[-1] == "step 300/600 (50 %), loss 0.25, lost steps 130"


def test_the_steps_that_a_killed_attempt_made_after_its_last_checkpoint_are_lost(
    seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen.tracker.newest_step = 420
    with watch(seen, tmp_path, CHECKPOINT) as watching:
        watching.handle(Restored(300, 0.5, role="chief-0"))
        watching.handle(METRICS)
        watching.handle(Restored(300, 0.5, role="chief-0"))
    told = [tags for tags in seen.tags if "psflow.lost_steps" in tags]
    assert told == [
        {"psflow.lost_steps": "301-420", "psflow.reached_step": "300"},
        {"psflow.lost_steps": "301-420, 301-400", "psflow.reached_step": "300"},
    ]
    assert messages(caplog)[0] == "training continues from step 300; steps 301-420 are lost and repeated"
    assert messages(caplog)[-1] == "step 300/600 (50 %), loss 0.25, lost steps 220"


def test_an_attempt_that_goes_on_from_the_very_end_of_the_last_one_loses_nothing(
    seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen.tracker.newest_step = 300
    seen.known_tags["psflow.reached_step"] = "300"
    with watch(seen, tmp_path, CHECKPOINT, EVALUATION) as watching:
        watching.handle(Restored(300, 0.5, role="chief-0"))
    assert not any("psflow.lost_steps" in tags for tags in seen.tags)
    assert messages(caplog) == ["step 300/600 (50 %), evaluated 300: accuracy 0.5"]


def test_a_chief_that_is_taken_over_from_costs_no_step(
    seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with watch(seen, tmp_path) as watching:
        watching.handle(METRICS)
        watching.handle(RoleLost("its Dask worker tcp://h:1 was lost", role="chief-0"))
        watching.handle(Metrics(420, {}))
    said = messages(caplog)
    lost = "chief-0 was lost and restarts: its Dask worker tcp://h:1 was lost; no step is lost"
    assert said == [lost, "step 420/600 (70 %), loss 0.25, restarts 1"]
    assert not any("psflow.lost_steps" in tags for tags in seen.tags)


def test_the_past_is_recorded_again_but_no_news(seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with watch(seen, tmp_path, CHECKPOINT, EVALUATION):
        pass
    assert messages(caplog) == ["step 300/600 (50 %), evaluated 300: accuracy 0.5"]
    assert seen.tracked[:2] == [CHECKPOINT, EVALUATION]


@pytest.mark.parametrize(("plots", "plotted"), [(True, ["earlier Checkpoint", "Evaluation"]), (False, [])])
def test_plots_can_be_turned_off(seen: Seen, tmp_path: Path, plots: bool, plotted: list[str]) -> None:
    with watch(seen, tmp_path, CHECKPOINT, plots=plots) as watching:
        watching.handle(EVALUATION)
    assert seen.plotted == plotted
    assert bool(seen.closed) == plots


def test_a_table_shows_what_json_has_no_number_for(seen: Seen, tmp_path: Path) -> None:
    with watch(seen, tmp_path) as watching:
        watching.handle(replace(EVALUATION, metrics={"loss": float("inf")}))
    tables = [given for kind, given in seen.artifacts if kind == "table"]
    assert tables[0][1] == [{"step": 300, "evaluation": "eval", "loss": "inf"}]


def test_links_lead_from_prefect_to_mlflow_and_dask(seen: Seen, tmp_path: Path) -> None:
    with watch(seen, tmp_path):
        pass
    links = [given for kind, given in seen.artifacts if kind == "link"]
    assert [link[:2] for link in links] == [("mlflow-run", "http://host/r1"), ("dask-dashboard", "http://host/dask")]
    assert ("label", {"psflow.mlflow_run": "r1"}) in seen.artifacts


def test_logs_of_roles_go_to_their_file(seen: Seen, tmp_path: Path) -> None:
    with watch(seen, tmp_path) as watching:
        watching.handle(LOG)
    assert "worker-0 INFO mine: said" in (tmp_path / "logs" / "roles.log").read_text()
    assert LOG not in seen.tracked


@pytest.mark.parametrize("fails", [False, True])
def test_plots_are_drawn_unless_something_went_wrong(seen: Seen, tmp_path: Path, fails: bool) -> None:
    try:
        with watch(seen, tmp_path):
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert fails
    assert seen.closed == {"draws": not fails}


def test_a_long_job_logs_its_progress_now_and_then(
    seen: Seen, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOG_SECS", 0.0)
    monkeypatch.setattr(module, "NOTE_SECS", 0.0)
    notes: SimpleQueue[dict[str, str]] = SimpleQueue()
    seen.tracker.put_tags = notes.put
    with watch(seen, tmp_path) as watching:
        watching.handle(METRICS)
        while "step 400" not in notes.get(timeout=200)["psflow.progress"]:
            pass
        notes.get(timeout=200)  # a line was logged since
        assert messages(caplog)[-1].startswith("step 400/600")
