"""What a program defines reaches the roles of a living cluster as it is when the job begins, and no ps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from psflow import Estimator, EvalSpec, RunConfig, SessionRunHook, TrainSpec, train_and_evaluate
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.errors import UsageError
from tests.leak_guard import no_leaks
from tests.user_modules import Program, writing_modules

pytestmark = pytest.mark.cluster(shared=True)

NUM_STEPS = 4
LIBRARY = "chunk_of_a_library"
"""What nothing but the program of the test imports."""
MODEL = """
import numpy as np
import chunk_of_a_library
from psflow import Dataset, EstimatorSpec, GradientDescent, SessionRunHook, get_variable
SEEN = {{}}
class Counts(SessionRunHook):
    def end(self, session):
        if SEEN["model"] != SEEN["input"] or not SEEN["model"]:
            raise AssertionError(SEEN)
def data():
    SEEN["input"] = True
    return Dataset(np.ones((8, 1), np.float32), np.ones(8)).batch(4).repeat()
def once():
    return Dataset(np.ones((8, 1), np.float32)).batch(4)
def model(features, labels, mode):
    SEEN["model"] = chunk_of_a_library.__name__ != ""
    w = get_variable("w", ())
    predictions = {{"y": np.full(len(features), {step})}}
    if labels is None:
        return EstimatorSpec(mode, predictions=predictions)
    train_op = GradientDescent(1.0).apply_gradients({{"w": np.float32(-{step})}})
    return EstimatorSpec(mode, predictions=predictions, loss=float(np.sum(w)), train_op=train_op)
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with no_leaks(), open_cluster(None, 4, 300) as client:
        yield client


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    """Install a library in all processes, and nothing of the program."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / f"{LIBRARY}.py").touch()
    monkeypatch.delitem(sys.modules, LIBRARY, raising=False)
    monkeypatch.syspath_prepend(str(folder))
    put_on_path(client, folder)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    yield from writing_modules(tmp_path / "program", monkeypatch)


def put_on_path(client: Client, folder: Path) -> None:
    client.run(eval, f"__import__('sys').path.insert(0, {str(folder)!r})")


def trained(client: Client, module: Any, model_dir: Path) -> Any:
    estimator = Estimator(module.model, str(model_dir), RunConfig(save_checkpoints_steps=NUM_STEPS, tf_random_seed=1))
    train_spec = TrainSpec(module.data, max_steps=NUM_STEPS, hooks=[module.Counts()])
    eval_spec = EvalSpec(module.data, steps=1, start_delay_secs=0, throttle_secs=0)
    train_and_evaluate(estimator, train_spec, eval_spec, client=client, num_workers=1)
    return estimator


def test_a_reloaded_module_trains_and_predicts_as_it_is_now(program: Program, client: Client, tmp_path: Path) -> None:
    put_on_path(client, tmp_path / "program")  # workers that import it would keep it
    values = []
    for step in (1, 100):
        module: Any = program({"edited_of_t.py": MODEL.format(step=step)})
        estimator = trained(client, module, tmp_path / f"runs{step}")
        values.append(float(estimator.get_variable_value("w")))
        assert [row["y"] for row in estimator.predict(module.once, client=client)] == [step] * 8
    assert values[1] - values[0] == pytest.approx(NUM_STEPS * (100 - 1))


def test_a_ps_has_nothing_of_the_program(program: Program, client: Client, tmp_path: Path) -> None:
    client.run(eval, f"__import__('sys').modules.pop({LIBRARY!r}, None) and None")
    put_on_path(client, tmp_path / "program")
    trained(client, program({"other_of_t.py": MODEL.format(step=1)}), tmp_path / "runs")
    assert sum(client.run(eval, f"{LIBRARY!r} in __import__('sys').modules").values()) == 3  # chief, worker, evaluator


class Holds(SessionRunHook):
    def __init__(self) -> None:
        self.held = (number for number in range(3))


def test_what_cannot_travel_is_named_before_a_role_starts(program: Program, client: Client, tmp_path: Path) -> None:
    module: Any = program({"edited_of_t.py": MODEL.format(step=1)})
    estimator = Estimator(module.model, str(tmp_path / "runs"))
    train_spec = TrainSpec(module.data, max_steps=1, hooks=[Holds()])
    words = r"^the job cannot travel .*: train_spec, TrainSpec.hooks, item 0, Holds.held is a generator \(cannot pickle"
    with pytest.raises(UsageError, match=words):
        train_and_evaluate(estimator, train_spec, EvalSpec(module.data, steps=1), client=client, num_workers=0)
