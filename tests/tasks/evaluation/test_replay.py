"""Evaluations on a cluster, without a flow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, Event

from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.topics import subscribe
from psflow.ps_runtime.data.digits import Digits
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.ps_runtime.estimator.canned.dnn import DNNClassifier
from psflow.ps_runtime.model.training import EvalSpec
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.tasks.evaluation import replay as module
from psflow.tasks.evaluation.replay import Replay
from psflow.tasks.evaluation.worker import EvaluationJob, Failure
from tests.silent_scheduler import SILENT, HangingFuture, SilentScheduler, be_impatient, client_of
from tests.user_modules import Program, writing_modules

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with open_cluster(None, 1, 300) as client:
        yield client


@pytest.fixture
def job(tmp_path: Path) -> EvaluationJob:
    """Return a job for checkpoints of digits, of which steps 0 to 4 are there."""
    read = partial(open_dataset, Digits(split="test"), batch_size=100)
    estimator = DNNClassifier(
        [4], None, 10, config=RunConfig(str(tmp_path), tf_random_seed=1, save_checkpoints_steps=1)
    )
    estimator.train(read, max_steps=4)
    specs = (EvalSpec(read, 1), EvalSpec(read, 2, name="two"))
    digests = ("", "")
    schema = read().schema()
    return EvaluationJob(
        str(tmp_path),
        estimator.model_fn,
        estimator.params,
        estimator.config,
        specs,
        digests,
        (None,) * len(specs),
        schema,
    )


def block(name: str) -> None:
    Event(name).wait()


class Impatient:
    """A client whose user does not want to wait until tasks are cancelled; notes what it is asked."""

    status = "running"

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.asked: list[str] = []
        self.loop, self.scheduler = SimpleNamespace(asyncio_loop=loop), SimpleNamespace()

    def cancel(self, futures: Any, force: bool) -> None:
        raise KeyboardInterrupt

    def subscribe_topic(self, name: str, handler: Any) -> None:
        self.asked.append("subscribe")

    def unsubscribe_topic(self, name: str) -> None:
        self.asked.append("unsubscribe")

    async def run(self, function: Any, name: str, wait: bool) -> None:
        self.asked.append(function.__name__)
        await asyncio.Event().wait()


def test_who_does_not_wait_for_the_end_hears_of_the_cluster_no_more(
    job: EvaluationJob, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FORGET_SECS", 0.5)  # the scheduler is silent
    client: Any = Impatient(loop)
    replay = Replay(client, job, {})
    subscribe(client, replay._name, replay._note_begin)
    with pytest.raises(KeyboardInterrupt):
        replay.__exit__(None, None, None)
    assert client.asked == ["subscribe", "unsubscribe", "forget"]


def test_a_scheduler_that_hands_over_no_outcomes_is_named(
    job: EvaluationJob, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impatient(monkeypatch)
    client = client_of(loop, SilentScheduler())
    replay, future = Replay(client, job, {}), HangingFuture(client)
    replay._futures[future] = (1, (0,))  # type: ignore[index]
    with pytest.raises(WaitTimeoutError, match=SILENT):
        replay._outcomes_of(future)  # type: ignore[arg-type]


@pytest.mark.cluster(shared=True)
def test_a_cluster_without_a_free_thread_is_not_waited_for_for_ever(client: Client, job: EvaluationJob) -> None:
    blocked = client.submit(block, "go on", pure=False)
    with (
        Replay(client, job, {1: [0]}) as replay,
        pytest.raises(WaitTimeoutError, match=r"^the Dask cluster did not have a free thread within 0\.1 s$"),
    ):
        list(replay.outcomes(0.1, lambda: None))
    Event("go on", client=client).set()
    blocked.result(timeout=200)


@pytest.mark.cluster(shared=True)
def test_inputs_that_are_not_those_of_the_flow_are_refused_and_distinguished(
    client: Client, job: EvaluationJob
) -> None:
    def check() -> None:
        assert any(replay._left.values()), "an interrupt has nothing to interrupt any more"

    with Replay(client, job, {0: [0, 1], 1: [1], 2: [0], 9: [0]}) as replay:
        outcomes = list(replay.outcomes(200.0, check))
        assert {failure.global_step for failure in replay.wait([0, 1, 2, 9], 0.0) or ()} == {0, 1, 2, 9}
    reasons = {(o.name, o.global_step): o.reason for o in outcomes if isinstance(o, Failure)}
    assert reasons.keys() == {("", 0), ("two", 0), ("two", 1), ("", 2), ("", 9)}
    assert "step_00000009: it was removed, or is not shared; use a directory that all hosts see" in reasons["", 9]
    assert reasons["two", 1].startswith("the input of evaluation 'two' has changed, or differs on this Dask")


EDITED = """
import numpy as np
from psflow import EstimatorSpec
LOSS = {loss}
def batches():
    yield np.zeros((2, 1)), np.zeros(2)
def model(features, labels, mode):
    return EstimatorSpec(mode, loss=LOSS)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    yield from writing_modules(tmp_path / "program", monkeypatch)


@pytest.mark.cluster(shared=True)
def test_an_edited_model_is_evaluated_as_it_is_now(
    client: Client, job: EvaluationJob, program: Program, tmp_path: Path
) -> None:
    # a worker that imports it would keep it
    client.run(eval, f"__import__('sys').path.insert(0, {str(tmp_path / 'program')!r})")
    losses = []
    for loss in (1.0, 2.0):
        edited: Any = program({"edited_of_replay.py": EDITED.format(loss=loss)})
        specs = (EvalSpec(edited.batches, 1),)
        new = replace(job, model_fn=edited.model, eval_specs=specs, digests=("",), scans=(None,), schema=None)
        with Replay(client, new, {4: [0]}) as replay:
            losses += [getattr(outcome, "metrics", outcome) for outcome in replay.outcomes(200.0, lambda: None)]
    assert [metrics["loss"] for metrics in losses] == [1.0, 2.0]
