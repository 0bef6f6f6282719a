"""The alias best, with several trainings that register under one name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from psflow.ps_runtime.model.best import better
from psflow.ps_runtime.roles.events import Export
from psflow.tasks.tracking.models import BestAlias
from psflow.tasks.tracking.tracker import Tracker

NAME = "psflow-digits"
ACCURACY = better("accuracy", "max")
Versions = Callable[..., str]


@pytest.fixture
def client(store: str) -> MlflowClient:
    return MlflowClient(store, store)


@pytest.fixture
def registered(client: MlflowClient) -> Versions:
    """Register a version of a run, with tags; give its number."""
    client.create_registered_model(NAME)
    runs: dict[str, str] = {}

    def register(run: str, **tags: str) -> str:
        runs.setdefault(run, client.create_run("0").info.run_id)
        named = {name.replace("_", ".", 1): value for name, value in tags.items()}
        return str(client.create_model_version(NAME, source="there", run_id=runs[run], tags=named).version)

    return register


def run_of(client: MlflowClient, version: str) -> str:
    return str(client.get_model_version(NAME, version).run_id)


def holder(client: MlflowClient) -> str:
    return str(client.get_registered_model(NAME).aliases["best"])


def give(
    client: MlflowClient, version: str, accuracy: float, step: int = 100, *, loss: float = 1.0, is_new: bool = True
) -> bool:
    alias = BestAlias(client, NAME, run_of(client, version), ACCURACY)
    return alias.give(version, step, {"accuracy": accuracy, "loss": loss}, is_new=is_new)


def test_within_a_run_it_moves_as_requested(client: MlflowClient, registered: Versions) -> None:
    first, second = registered("mine"), registered("mine")
    assert give(client, second, 0.9)
    assert give(client, first, 0.1, is_new=False)
    assert holder(client) == first


def test_what_is_not_finite_never_takes_it(client: MlflowClient, registered: Versions) -> None:
    first, second = registered("mine"), registered("mine")
    assert not give(client, first, float("inf"))
    assert not give(client, first, 0.9, loss=float("nan"))
    assert give(client, first, 0.9)
    assert not give(client, second, float("nan"))
    assert holder(client) == first


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "retold"])
def test_another_training_must_be_better(client: MlflowClient, registered: Versions, is_new: bool) -> None:
    theirs, worse, ours = registered("theirs", eval_accuracy="0.98"), registered("ours"), registered("ours")
    give(client, theirs, 0.98)
    assert not give(client, worse, 0.1, step=0, is_new=is_new)
    assert not give(client, worse, 0.98, is_new=is_new)
    assert not give(client, worse, float("nan"), is_new=is_new)
    assert not give(client, worse, 0.99, loss=float("nan"), is_new=is_new)  # as BestExporter sees it
    assert holder(client) == theirs
    assert give(client, ours, 0.99, is_new=is_new)
    assert holder(client) == ours


@pytest.mark.parametrize("tags", [{}, {"eval_loss": "0.1"}, {"eval_accuracy": "high"}])
def test_what_cannot_be_compared_gives_way_to_a_new_trained_model(
    client: MlflowClient, registered: Versions, tags: dict[str, str]
) -> None:
    theirs, ours = registered("theirs", **tags), registered("ours")
    give(client, theirs, 0.5)
    assert not give(client, ours, 0.9, step=0)
    assert not give(client, ours, 0.9, is_new=False)
    assert give(client, ours, 0.9)
    assert holder(client) == ours


def test_that_it_stays_is_said_once(
    client: MlflowClient, registered: Versions, caplog: pytest.LogCaptureFixture
) -> None:
    give(client, registered("theirs", eval_accuracy="0.98"), 0.98)
    first, second = registered("ours"), registered("ours")
    alias = BestAlias(client, NAME, run_of(client, first), ACCURACY)
    for version, accuracy in ((first, 0.1), (second, 0.2)):
        assert not alias.give(version, 1, {"accuracy": accuracy}, is_new=True)
    assert caplog.messages == [
        "the alias best of psflow-digits stays with version 1, of another training; version 2 does not take it, "
        "because its accuracy is 0.1, and that of version 1 is 0.98 (best.mode: max); "
        "psflow export --model-dir DIR moves it anyway"
    ]


def test_a_finished_training_that_is_started_again_leaves_it_to_a_better_one(
    client: MlflowClient, open_tracker: Callable[..., Tracker], exported: Path
) -> None:
    def told(step: int, accuracy: float) -> Export:
        return Export("best", step, 1, str(exported), True, {"accuracy": accuracy})

    def train(*events: Export, run_id: str | None = None) -> str:
        tracker = open_tracker(run_id=run_id, better=ACCURACY)
        for event in events:
            tracker.register(event)
        assert tracker.close(timeout_secs=200), tracker.statistics()
        return tracker.run_id

    older = train(told(100, 0.9))
    train(told(0, 0.1))
    assert holder(client) == "1"
    train(told(100, 0.95))
    train(told(100, 0.9), run_id=older)
    assert holder(client) == "3"
