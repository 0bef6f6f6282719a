"""Exporters: what they accept, and that from Python, too, each writes what it chooses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from psflow import BestExporter, EvalSpec, FinalExporter, LatestExporter, TrainSpec, better, train_and_evaluate
from psflow.ps_runtime.errors import ModelFnError, UsageError
from psflow.ps_runtime.estimator import train_and_evaluate as training
from psflow.tasks.exports.writer import MlflowModelWriter
from tests.conformance.programs import line, rows

EXPORTERS = [FinalExporter("final"), LatestExporter("latest", exports_to_keep=2), BestExporter()]


class StepWriter:
    """Writes the global step alone."""

    def write(self, directory: str, bundle: Any) -> None:
        Path(directory).mkdir()
        Path(directory, "step").write_text(str(bundle.global_step))


def exported(model_dir: str) -> dict[str, list[int]]:
    """Return the step of each export, by exporter, oldest first."""
    folders = Path(model_dir, "export").iterdir() if Path(model_dir, "export").exists() else ()
    return {
        folder.name: [int(path.read_text()) for path in sorted(folder.glob("*/step"), key=lambda p: int(p.parent.name))]
        for folder in folders
    }


def run(estimator: Any, exporters: Any, **options: Any) -> dict[str, list[int]]:
    eval_spec = EvalSpec(rows, None, exporters=exporters, start_delay_secs=0, throttle_secs=0)
    options = {"on_event": lambda event: None} | options
    train_and_evaluate(estimator, TrainSpec(lambda: rows().repeat(), max_steps=4), eval_spec, **options)
    return exported(estimator.model_dir)


def test_every_evaluation_asks_every_exporter(make):
    found = run(make(save_checkpoints_steps=2), EXPORTERS, writer=StepWriter())
    assert found == {"final": [4], "latest": [2, 4], "best": [0, 2, 4]}


def test_from_python_an_mlflow_model_is_written_unless_another_writer_is_given(make, monkeypatch):
    written = []

    class Recording(MlflowModelWriter):
        def write(self, directory: str, bundle: Any) -> None:
            written.append(bundle.global_step)
            StepWriter().write(directory, bundle)

    monkeypatch.setattr(training, "installed_writer", Recording)
    assert run(make(), LatestExporter("latest")) == {"latest": [0, 4]}
    assert written == [0, 4]


def test_without_exporters_nothing_is_exported(make):
    assert run(make(), None) == {}


def test_a_model_fn_that_no_model_can_hold_is_refused_before_anything_starts(make):
    def inside(features, labels, mode):
        return line(features, labels, mode)

    estimator = make(inside)
    with pytest.raises(ValueError, match="cannot be exported: move it to the top level of its module") as caught:
        run(estimator, FinalExporter("final"))
    assert type(caught.value) is ModelFnError
    assert not Path(estimator.model_dir).exists()


@pytest.mark.parametrize("keep", [1, 5, None])
@pytest.mark.parametrize("kind", [LatestExporter, BestExporter])
def test_some_or_all_exports_are_kept(kind, keep):
    assert kind("a", exports_to_keep=keep).exports_to_keep == keep
    assert kind("a").exports_to_keep == 5


@pytest.mark.parametrize("keep", [0, -1, 2.5, "a", True, [1]])
@pytest.mark.parametrize("kind", [LatestExporter, BestExporter])
def test_a_number_of_exports_that_is_none(kind, keep):
    said = f"exports_to_keep: expected a whole number >= 1, or None for all; got {keep!r}"
    with pytest.raises(ValueError, match=re.escape(said)):
        kind("a", exports_to_keep=keep)


def only_best(best_eval_result: Any) -> bool:
    return True


def with_default(best_eval_result: Any, current_eval_result: Any, margin: float = 0.0) -> bool:
    return True


def other_names(best: Any, current: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("compare_fn", "fault"),
    [
        (
            only_best,
            "compare_fn: expected exactly the arguments best_eval_result, current_eval_result; got best_eval_r",
        ),
        (with_default, "compare_fn: expected exactly the arguments best_eval_result, current_eval_result; got best_ev"),
        (other_names, "compare_fn: expected exactly the arguments best_eval_result, current_eval_result; got best, cu"),
        (None, "compare_fn: expected a function, got None"),
        (3, "compare_fn: expected a function, got 3"),
    ],
)
def test_compare_fn_takes_exactly_its_two_arguments(compare_fn, fault):
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}") as caught:
        BestExporter("b", compare_fn=compare_fn)
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize("compare_fn", [3, "loss"])
def test_a_compare_fn_of_another_type_is_an_error_of_type(compare_fn):
    with pytest.raises(TypeError, match=r"^compare_fn: expected a function, got "):
        BestExporter("b", compare_fn=compare_fn)


@pytest.mark.parametrize(
    ("best", "current", "is_better"),
    [(2.0, 1.0, True), (1.0, 2.0, False), (1.0, 1.0, False), (float("nan"), 1.0, True), (1.0, float("nan"), False)],
)
def test_the_default_is_a_strictly_smaller_loss(best, current, is_better):
    compare_fn = BestExporter("b").compare_fn
    assert compare_fn({"loss": best}, {"loss": current}) is is_better
    assert compare_fn == better("loss", "min")
