"""What a program without a flow prints about its training, evaluation and prediction."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from psflow.ps_runtime.estimator import event_log
from psflow.ps_runtime.estimator.event_log import log_event, log_own_event, print_unless_configured, sentences_of
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.event_codec import forwarded_logs
from psflow.ps_runtime.roles.event_dispatch import without_events
from psflow.ps_runtime.roles.events import (
    Checkpoint,
    Evaluation,
    Event,
    Export,
    FirstStep,
    LogMessage,
    Metrics,
    PsListening,
    Restored,
    RoleEnded,
    RoleLeaving,
    RoleLost,
    RoleStarted,
    SummaryFile,
    TrainingLoss,
    WorkersMissing,
)
from psflow.ps_runtime.specs.roles import RoleId
from psflow.ps_runtime.transport.listeners import Address
from tests.limits import HANG_SECS

PROGRAM = """
import logging
import sys

import numpy as np
import psflow

assert not logging.getLogger("psflow").handlers, "importing psflow configures nothing"
{configuration}

def input_fn():
    return psflow.Dataset({{"x": np.arange(8.0)}}, np.arange(8.0)).batch(4)

def model_fn(features, labels, mode):
    w = psflow.get_variable("w")
    error = 0.5 + 0 * features["x"] + w * 0
    optimizer = psflow.optimizers.GradientDescent(learning_rate=0.1)
    return psflow.EstimatorSpec(
        mode, predictions=error, loss=0.25, train_op=optimizer.apply_gradients({{"w": np.float32(0)}})
    )

estimator = psflow.Estimator(model_fn, sys.argv[1], psflow.RunConfig(save_checkpoints_steps=100, tf_random_seed=1))
estimator.train(lambda: input_fn().repeat(), max_steps=110)
estimator.evaluate(input_fn)
print(len(list(estimator.predict(input_fn))))
estimator.train(lambda: input_fn().repeat(), steps=10)
"""
RATE = r"[\d.e+]+"


def lines_of(tmp_path: Path, configuration: str) -> list[str]:
    """Return the lines that a program writes to stderr, in order."""
    program = PROGRAM.format(configuration=configuration)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "m")], capture_output=True, text=True, timeout=HANG_SECS
    )
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
    return done.stderr.splitlines()


def expected(tmp_path: Path) -> list[str]:
    saved = f"INFO:psflow:Saving checkpoints for {{}} into {tmp_path}/m/checkpoints/step_{{:08d}}."
    restored = f"INFO:psflow:Restoring parameters from {tmp_path}/m/checkpoints/step_00000110"
    return [
        "INFO:psflow:loss = 0.25, step = 0",
        saved.format(0, 0),
        "INFO:psflow:loss = 0.25, step = 100, global_step/sec: RATE",
        saved.format(100, 100),
        saved.format(110, 110),
        "INFO:psflow:Loss for final step: 0.25.",
        restored,
        "INFO:psflow:Starting evaluation",
        "INFO:psflow:Finished evaluation at step 110",
        "INFO:psflow:Saving dict for global step 110: loss = 0.25",
        restored,
        restored,
        "INFO:psflow:loss = 0.25, step = 110",
        saved.format(120, 120),
        "INFO:psflow:Loss for final step: 0.25.",
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    "configuration", ["logging.getLogger().setLevel(logging.INFO)", "logging.basicConfig(level=logging.INFO)"]
)
def test_a_program_sees_each_line_once_whether_it_sets_a_level_or_a_handler(tmp_path: Path, configuration: str) -> None:
    lines = [re.sub(f"sec: {RATE}$", "sec: RATE", line) for line in lines_of(tmp_path, configuration)]
    assert sorted(lines) == sorted(expected(tmp_path))  # a thread saves meanwhile
    own = [line for line in lines if "Saving checkpoints" not in line]
    assert own == [line for line in expected(tmp_path) if "Saving checkpoints" not in line]


@pytest.mark.process
def test_a_program_that_asks_for_nothing_sees_nothing(tmp_path: Path) -> None:
    assert lines_of(tmp_path, "") == []


SENTENCES: dict[Event, tuple[int, tuple[str, ...]]] = {
    RoleStarted("ada"): (logging.DEBUG, ("started on ada",)),
    PsListening(Address("ada", 2222, None, "")): (logging.DEBUG, ("listens at ada:2222",)),
    FirstStep(): (logging.DEBUG, ("made its first step",)),
    RoleLeaving(): (logging.DEBUG, ("leaves, because its Dask worker closes",)),
    RoleEnded(): (logging.DEBUG, ("ended",)),
    SummaryFile(3, "summaries/w.json", "e30="): (logging.DEBUG, ()),
    Restored(5, 0.1, "m/5"): (logging.INFO, ("Restoring parameters from m/5",)),
    Restored(0, 0.1): (logging.INFO, ("Initializing all variables again: no checkpoint was saved",)),
    TrainingLoss(0, 1 / 3): (logging.INFO, ("loss = 0.333333, step = 0",)),
    TrainingLoss(9, 0.12, is_last=True): (logging.INFO, ("Loss for final step: 0.12.",)),
    Checkpoint(100, "m/100", 0.5, 1.0): (logging.INFO, ("Saving checkpoints for 100 into m/100.",)),
    LogMessage(logging.ERROR, "mine", "it is late"): (logging.ERROR, ("it is late",)),
    RoleLost("it is gone"): (logging.WARNING, ("was lost and restarts: it is gone; no step is lost",)),
    RoleLost("it is gone", rolls_back=True): (
        logging.WARNING,
        ("was lost and restarts: it is gone; all roles roll back to the last checkpoint",),
    ),
    WorkersMissing(2, 4): (logging.WARNING, ("2 of 4 workers wait for a free slot",)),
    WorkersMissing(0, 4): (logging.INFO, ("all 4 workers have a slot",)),
}
WITH_METRICS: list[tuple[Event, tuple[str, ...]]] = [
    (
        Metrics(100, {"loss": 0.158, "steps_per_sec": 210.3, "staleness": 0.0}, role="chief-0"),
        ("loss = 0.158, step = 100, global_step/sec: 210.3",),
    ),
    (
        Metrics(7, {"role/worker-1/loss": 0.5, "role/worker-1/steps_per_sec": 2.0}, role="worker-1"),
        ("loss = 0.5, step = 7, global_step/sec: 2",),
    ),
    (Metrics(7, {"role/worker-1/rss_mb": 90.0, "role/worker-1/steps_per_sec": 2.0}, role="worker-1"), ()),
    (Metrics(7, {"bias": 1.0}, role="chief-0"), ()),
    (
        Evaluation(100, {"loss": 0.1, "accuracy": 0.9}, 0.0),
        ("Finished evaluation at step 100", "Saving dict for global step 100: accuracy = 0.9, loss = 0.1"),
    ),
    (
        Evaluation(100, {"loss": float("nan")}, 0.0, "held_out"),
        ("Finished evaluation at step 100", "Saving dict for global step 100 of held_out: loss = nan"),
    ),
    (Export("best", 300, 2, "/m/export/best/2", True, {}), ("SavedModel written to: /m/export/best/2",)),
]


def test_every_kind_of_event_has_its_sentences_or_none() -> None:
    told = [*SENTENCES.items(), *((event, (logging.INFO, lines)) for event, lines in WITH_METRICS)]
    assert {type(event) for event, _ in told} == set(get_args(Event))
    for event, sentences in told:
        assert sentences_of(event) == sentences


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (TrainingLoss(0, 0.5, role="chief-0"), "loss = 0.5, step = 0"),
        (TrainingLoss(0, 0.5, role="worker-1"), "worker-1: loss = 0.5, step = 0"),
        (Evaluation(1, {}, 0.0, role="evaluator-0"), "Saving dict for global step 1: "),
        (RoleLost("it is gone", role="chief-0"), "chief-0: was lost and restarts: it is gone; no step is lost"),
        (WorkersMissing(0, 4), "all 4 workers have a slot"),
        (LogMessage(logging.WARNING, "mine", "x", role="worker-0"), "worker-0: mine: x"),
    ],
)
def test_the_owner_names_the_roles_that_do_not_speak_for_the_job(
    event: Event, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log_event(event)
    assert caplog.messages[-1] == line
    assert caplog.records[-1].name == "psflow"


def test_a_role_does_not_name_itself_nor_repeat_its_log_messages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_own_event(LogMessage(logging.WARNING, "mine", "x", role="worker-0"))
    log_own_event(TrainingLoss(0, 0.5, role="worker-0"))
    assert caplog.messages == ["loss = 0.5, step = 0"]


@contextmanager
def unconfigured(level: int, *, runs_own_role: bool = True) -> Iterator[logging.Logger]:
    """Yield the root logger, at a level, without the handlers that pytest adds when a test is called."""
    root, own = logging.getLogger(), logging.getLogger("psflow")
    before = root.handlers, own.handlers, root.level, event_log._handler.runs_own_role
    root.handlers, own.handlers = [], []
    root.setLevel(level)
    event_log._handler.runs_own_role = False
    print_unless_configured(runs_own_role=runs_own_role)
    try:
        yield root
    finally:
        root.handlers, own.handlers = before[:2]
        root.setLevel(before[2])
        event_log._handler.runs_own_role = before[3]


@pytest.mark.parametrize(("level", "printed"), [(logging.WARNING, ""), (logging.INFO, "INFO:psflow:made\n")])
def test_a_role_that_forwards_its_log_changes_neither_handler_nor_level(
    level: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forwarded: list[Any] = []
    context = RoleContext(RoleId.parse("worker-0"), 1, lambda: None, forwarded.append)
    with unconfigured(level), forwarded_logs(context):
        logging.getLogger("psflow.some.module").info("made")
    assert [event.message for event in forwarded] == ["made"]
    assert capsys.readouterr().err == printed


def test_what_the_owner_prints_of_a_role_in_its_process_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    """As on a Dask cluster without processes of its own."""
    heard = without_events()(log_event)
    context = RoleContext(RoleId.parse("worker-0"), 1, lambda: None, heard)
    with unconfigured(logging.INFO, runs_own_role=False), forwarded_logs(context):
        logging.getLogger("psflow.some.module").info("made")
    assert capsys.readouterr().err == "INFO:psflow:worker-0: psflow.some.module: made\n"


@pytest.mark.parametrize("name", ["", "psflow", "psflow.some"])
def test_a_handler_that_is_added_later_takes_over(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    taken: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: taken.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("psflow.some.module")
    with unconfigured(logging.INFO):
        log.info("ours")
        logging.getLogger(name).addHandler(handler)
        log.info("theirs")
        logging.getLogger(name).removeHandler(handler)
        log.info("ours again")
    assert taken == ["theirs"]
    assert capsys.readouterr().err == "INFO:psflow:ours\nINFO:psflow:ours again\n"


def test_pythons_last_resort_prints_a_warning_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """It is among the handlers of the root logger while a role runs in a process of its own."""
    assert logging.lastResort is not None
    with unconfigured(logging.INFO) as root:
        root.addHandler(logging.lastResort)
        logging.getLogger("psflow.some.module").warning("late")
        logging.getLogger("psflow.some.module").info("made")
    assert capsys.readouterr().err == "late\nINFO:psflow:made\n"
