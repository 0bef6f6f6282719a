from __future__ import annotations

import inspect
import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.data.enforcement import schema_of
from psflow.ps_runtime.errors import ArgumentTypeError, CheckpointError, LostDirectoryError, StorageError, UsageError
from psflow.ps_runtime.model.best import best_of, better, not_finite
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.export.bundle import ExportBundle
from psflow.ps_runtime.model.export.exporters import BestExporter, Exporter, ExportResult, FinalExporter, LatestExporter


def bundle(step: int = 1, **metrics: float) -> ExportBundle:
    return ExportBundle(
        "model",
        step,
        ModelValues({"w": np.ones(2)}),
        bundle,
        {},
        np.zeros((1, 2)),
        {},
        {"loss": 1.0, "global_step": step} | metrics,
        0.5 + step,
        schema_of(np.zeros((1, 2)), None),
    )


class Writer:
    """Writes the step, to be recognised by; fails half-way when it is told to."""

    def __init__(self) -> None:
        self.fails = False

    def write(self, directory: str, bundle: ExportBundle) -> None:
        assert not os.path.exists(directory)
        os.makedirs(os.path.join(directory, "data"))
        if self.fails:
            raise RuntimeError("the writer failed")
        Path(directory, "data", "step").write_text(str(bundle.global_step))


@pytest.fixture
def writer() -> Writer:
    return Writer()


def run(exporter: Exporter, model_dir: Any, writer: Writer, step: int, *, final: bool = False, **metrics: float) -> Any:
    return exporter.export(str(model_dir), bundle(step, **metrics), writer, is_the_final_export=final)


def exported(model_dir: Any, name: str) -> dict[int, int]:
    """Return version -> step of what stands in the exporter's directory, which must hold nothing half done."""
    directory = Path(model_dir, "export", name)
    assert not [p.name for p in directory.iterdir() if p.name.startswith(".psflow-tmp")]
    return {int(p.name): int((p / "data" / "step").read_text()) for p in directory.iterdir() if p.name.isdigit()}


def test_latest_exports_every_time_and_keeps_the_newest(tmp_path: Any, writer: Writer) -> None:
    exporter = LatestExporter("latest", exports_to_keep=2)
    results = [run(exporter, tmp_path, writer, step) for step in (10, 20, 30)]
    assert results[2] == ExportResult(
        "latest", 3, str(tmp_path / "export" / "latest" / "3"), 30, is_best=False, metrics=bundle(30).metrics
    )
    assert exported(tmp_path, "latest") == {2: 20, 3: 30}
    for step in (40, 50):
        run(LatestExporter("all", exports_to_keep=None), tmp_path, writer, step)
    assert exported(tmp_path, "all") == {1: 40, 2: 50}


@pytest.mark.parametrize("exporter", [LatestExporter("best"), BestExporter()])
def test_the_newest_five_exports_stay_where_nothing_is_said(tmp_path: Any, writer: Writer, exporter: Exporter) -> None:
    for step in range(7):
        run(exporter, tmp_path, writer, step, loss=-step)
    assert exported(tmp_path, "best") == {version: version - 1 for version in range(3, 8)}


def test_one_export_may_stay_alone(tmp_path: Any, writer: Writer) -> None:
    for step in range(3):
        run(LatestExporter("latest", exports_to_keep=1), tmp_path, writer, step)
    assert exported(tmp_path, "latest") == {3: 2}


def test_final_exports_the_final_checkpoint_only(tmp_path: Any, writer: Writer) -> None:
    assert run(FinalExporter("final"), tmp_path, writer, 10) is None
    assert run(FinalExporter("final"), tmp_path, writer, 20, final=True).version == 1
    assert exported(tmp_path, "final") == {1: 20}


def test_best_exports_what_is_strictly_better(tmp_path: Any, writer: Writer) -> None:
    losses = [math.nan, 0.5, 0.7, 0.5, 0.4, math.nan, -math.inf, 0.3]
    results = [run(BestExporter(), tmp_path, writer, step, loss=loss) for step, loss in enumerate(losses)]
    assert [None if r is None else r.global_step for r in results] == [None, 1, None, None, 4, None, None, 7]
    assert all(r.is_best for r in results if r is not None)
    assert exported(tmp_path, "best") == {1: 1, 2: 4, 3: 7}
    best = BestExporter().best(str(tmp_path))
    assert best is not None
    assert (best.step, best.version, best.metrics["loss"]) == (7, 3, 0.3)
    assert best.path == str(tmp_path / "export" / "best" / "3")


def by_auc(best_eval_result: Any, current_eval_result: Any) -> bool:
    return bool(current_eval_result["auc"] > best_eval_result["auc"])


def by_auc_with_get(best_eval_result: Any, current_eval_result: Any) -> bool:
    return bool(current_eval_result.get("auc", 0.0) > best_eval_result.get("auc", 0.0))


@pytest.mark.parametrize("compare_fn", [by_auc, by_auc_with_get, better("auc", "max")])
def test_what_is_not_finite_is_never_the_best_and_blocks_nothing(
    tmp_path: Any, writer: Writer, compare_fn: Any
) -> None:
    exporter = BestExporter(compare_fn=compare_fn)
    assert run(exporter, tmp_path, writer, 1, loss=math.nan, auc=math.nan) is None
    assert run(exporter, tmp_path, writer, 2, loss=math.nan, auc=0.5) is None
    assert run(exporter, tmp_path, writer, 3, loss=1.0, auc=math.inf) is None
    assert run(exporter, tmp_path, writer, 4, loss=2.0, auc=0.1, recall=math.nan).is_best
    assert run(exporter, tmp_path, writer, 5, loss=math.inf, auc=0.9) is None
    assert run(exporter, tmp_path, writer, 6, loss=1.0, auc=math.inf) is None
    assert run(exporter, tmp_path, writer, 7, loss=3.0, auc=0.2).is_best
    assert exported(tmp_path, "best") == {1: 4, 2: 7}


@pytest.mark.parametrize(
    "value",
    [
        lambda metrics: max(metrics.values()),
        lambda metrics: max(value for _, value in metrics.items()),
        lambda metrics: max(metrics[name] for name in metrics),
        lambda metrics: max(map(metrics.get, metrics.keys())),
        lambda metrics: metrics.pop("auc"),
        lambda metrics: metrics.copy()["auc"],
        lambda metrics: {**metrics}["auc"],
        lambda metrics: dict(metrics)["auc"],
    ],
)
def test_a_metric_decides_however_it_is_looked_at(value: Any) -> None:
    def compare_fn(best_eval_result: Any, current_eval_result: Any) -> bool:
        return bool(value(current_eval_result) > value(best_eval_result))

    metrics = {"loss": 1.0, "auc": math.nan}
    assert [*not_finite(compare_fn, metrics)] == ["auc"]
    assert [*metrics] == ["loss", "auc"]


def test_the_best_is_never_removed(tmp_path: Any, writer: Writer) -> None:
    """Versions newer than the best come from incarnations that ended between an export and its record."""
    exporter = BestExporter(exports_to_keep=2)
    run(exporter, tmp_path, writer, 1, loss=0.5)
    for step in range(2, 5):
        export_with_crash(tmp_path, step, 0.4, "record")
    run(exporter, tmp_path, writer, 5, loss=0.6)
    assert exported(tmp_path, "best") == {1: 1, 2: 2, 3: 3, 4: 4}
    assert run(exporter, tmp_path, writer, 6, loss=0.4).version == 5
    assert exported(tmp_path, "best") == {4: 4, 5: 6}


losses = st.one_of(st.just(math.nan), st.just(math.inf), st.integers(0, 5).map(float))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(losses, st.sampled_from(["", "write", "rename", "record", "after"])), max_size=12))
def test_best_equals_an_oracle_over_restarts_at_any_point(
    tmp_path_factory: pytest.TempPathFactory, evaluations: list[tuple[float, str]]
) -> None:
    """The oracle: the first of the smallest finite losses. Each crash is followed by a rerun."""
    model_dir = tmp_path_factory.mktemp("model")
    seen: list[tuple[float, int]] = []
    for step, (loss, crash) in enumerate(evaluations):
        export_with_crash(model_dir, step, loss, crash)
        run(BestExporter(exports_to_keep=2), model_dir, Writer(), step, loss=loss)
        seen += [(loss, step)] if math.isfinite(loss) else []
        best = BestExporter().best(str(model_dir))
        if best is None:
            assert seen == []
            continue
        assert best.step == min(seen)[1]
        versions = exported(model_dir, "best")
        assert versions[best.version] == best.step


def export_with_crash(model_dir: Path, step: int, loss: float, crash: str) -> None:
    """Export in an incarnation that ends at `crash`, if it reaches that."""
    if not crash:
        return
    writer = Writer()
    writer.fails = crash == "write"
    target = {"rename": "os.rename", "record": "psflow.ps_runtime.model.best.BestRecord.write"}.get(crash)

    def fail(*_: object) -> None:
        raise RuntimeError("a crash")

    with pytest.MonkeyPatch.context() as patch:
        if target:
            patch.setattr(target, fail)
        try:
            run(BestExporter(exports_to_keep=2), model_dir, writer, step, loss=loss)
        except RuntimeError:
            assert crash != "after"


def test_a_failed_writer_leaves_nothing(tmp_path: Any, writer: Writer) -> None:
    writer.fails = True
    with pytest.raises(RuntimeError, match="the writer failed"):
        run(LatestExporter("latest"), tmp_path, writer, 1)
    assert exported(tmp_path, "latest") == {}
    with pytest.raises(StorageError, match="export/latest/1 could not be written: No such file or directory"):
        LatestExporter("latest").export(str(tmp_path), bundle(), _Lazy(), is_the_final_export=False)
    writer.fails = False
    assert run(LatestExporter("latest"), tmp_path, writer, 1).version == 1


class _Lazy:
    def write(self, directory: str, bundle: ExportBundle) -> None:
        """Write nothing at all."""


def test_what_a_killed_life_left_is_removed(tmp_path: Any, writer: Writer) -> None:
    leftover = tmp_path / "export" / "latest" / ".psflow-tmp-0123abcd" / "data"
    leftover.mkdir(parents=True)
    run(LatestExporter("latest"), tmp_path, writer, 1)
    assert exported(tmp_path, "latest") == {1: 1}


def test_what_is_put_in_place_of_a_version_goes_with_it(tmp_path: Path, writer: Writer) -> None:
    exporter = LatestExporter("latest", exports_to_keep=1)
    run(exporter, tmp_path, writer, 10)
    for name, make in (("2", Path.touch), ("3", lambda path: path.symlink_to(tmp_path))):
        make(tmp_path / "export/latest" / name)
    run(exporter, tmp_path, writer, 20)
    run(exporter, tmp_path, writer, 30)
    assert exported(tmp_path, "latest") == {5: 30}


class FencedWriter(Writer):
    """Finds after it has written that the model_dir is another one by now."""

    def write(self, directory: str, bundle: ExportBundle) -> None:
        super().write(directory, bundle)
        raise LostDirectoryError(directory, "it was moved")


@pytest.mark.parametrize("exporter", [BestExporter(), LatestExporter("latest"), FinalExporter("final")])
def test_in_a_model_dir_that_is_not_its_own_nothing_is_left(tmp_path: Path, exporter: Exporter, writer: Writer) -> None:
    """The directory may be exchanged after the last check of its mark, and before anything is created there."""
    with pytest.raises(LostDirectoryError):
        run(exporter, tmp_path, FencedWriter(), 1, final=True)
    assert list(tmp_path.iterdir()) == []
    run(exporter, tmp_path, writer, 1, final=True)
    with pytest.raises(LostDirectoryError):
        run(exporter, tmp_path, FencedWriter(), 2, final=True, loss=0.5)
    assert exported(tmp_path, exporter.name) == {1: 1}


def test_a_checkpoint_that_is_not_the_final_one_makes_no_directory(tmp_path: Path, writer: Writer) -> None:
    assert run(FinalExporter("final"), tmp_path, writer, 1) is None
    assert list(tmp_path.iterdir()) == []


def test_a_url_where_two_processes_could_write_is_refused(writer: Writer) -> None:
    with pytest.raises(UsageError, match=r"^http://h/m/export/final: one process at a time may write there, which"):
        run(FinalExporter("final"), "http://h/m", writer, 1, final=True)


@pytest.mark.parametrize("exporter", [BestExporter(), LatestExporter("latest"), FinalExporter("final")])
def test_a_checkpoint_is_exported_once_however_often_it_is_evaluated(
    tmp_path: Path, exporter: Exporter, writer: Writer
) -> None:
    """An evaluator that was killed before it recorded its evaluation repeats that."""
    export_with_crash(tmp_path, 10, 1.0, "record")
    results = [run(exporter, tmp_path, writer, 10, final=True) for _ in range(2)]
    assert [result.version for result in results if result is not None] in ([1], [1, 1])
    assert exported(tmp_path, exporter.name) == {1: 10}


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", None])
def test_a_name_names_a_directory(name: Any) -> None:
    with pytest.raises(UsageError, match=r"exporter name .*: expected letters, digits"):
        FinalExporter(name)


@pytest.mark.parametrize("keep", [0, -1, 2.5, True])
def test_exports_to_keep_is_checked(keep: Any) -> None:
    with pytest.raises(UsageError, match="exports_to_keep: expected a whole number >= 1, or None for all; got"):
        LatestExporter("latest", exports_to_keep=keep)
    with pytest.raises(UsageError, match="exports_to_keep"):
        BestExporter(exports_to_keep=keep)


@pytest.mark.parametrize(
    ("compare_fn", "got"),
    [
        (lambda best, current: True, "got best, current"),
        (lambda: True, "got none"),
        (lambda best_eval_result: True, "got best_eval_result"),
        (
            lambda best_eval_result, current_eval_result, extra=1: True,
            "got best_eval_result, current_eval_result, extra",
        ),
        ("loss", "got 'loss'"),
        (None, "got None"),
    ],
)
def test_compare_fn_must_have_exactly_its_arguments(compare_fn: Any, got: str) -> None:
    with pytest.raises(UsageError, match=rf"compare_fn: expected .*{got}"):
        BestExporter(compare_fn=compare_fn)


def test_compare_fn_may_name_its_arguments_in_any_order(tmp_path: Any, writer: Writer) -> None:
    exporter = BestExporter(compare_fn=lambda current_eval_result, best_eval_result: current_eval_result["loss"] > 0.5)
    assert run(exporter, tmp_path, writer, 1, loss=0.1).is_best
    assert run(exporter, tmp_path, writer, 2, loss=0.4) is None
    assert run(exporter, tmp_path, writer, 3, loss=0.9).is_best


def test_better_compares_one_metric() -> None:
    up = better("accuracy", "max")
    assert list(inspect.signature(up).parameters) == ["best_eval_result", "current_eval_result"]
    assert pickle.loads(pickle.dumps(up)) == up
    nan = math.nan
    cases = [
        (0.1, 0.2, True),
        (0.2, 0.1, False),
        (0.2, 0.2, False),
        (nan, 0.0, True),
        (0.0, nan, False),
        (nan, nan, False),
        (0.1, math.inf, False),
        (math.inf, 0.1, True),
    ]
    for best, current, answer in cases:
        assert up({"accuracy": best}, {"accuracy": current}) is answer
        assert better("x", "min")({"x": -best}, {"x": -current}) is answer
    with pytest.raises(UsageError, match="mode: expected 'min' or 'max', got 'mx'; did you mean 'max'"):
        better("accuracy", "mx")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("losses", "best"),
    [([], None), ([math.nan, math.inf], None), ([math.nan, 0.5, 0.7, 0.4, 0.4, -math.inf], 3), ([0.1, 0.2], 0)],
)
def test_the_best_of_a_record_is_the_first_of_the_best_that_are_finite(losses: list[float], best: int | None) -> None:
    assert best_of([{"loss": loss} for loss in losses], better("loss", "min")) == best


def test_a_metric_that_is_not_there_is_an_error_at_the_first_evaluation(tmp_path: Any, writer: Writer) -> None:
    exporter = BestExporter(compare_fn=better("acuracy", "max"))
    words = "^compare_fn: the evaluation has accuracy, loss, but no metric 'acuracy'; did you mean 'accuracy'"
    with pytest.raises(UsageError, match=words):
        run(exporter, tmp_path, writer, 1, accuracy=0.5)
    assert exported(tmp_path, "best") == {}


def newer_is_better(best_eval_result: Any, current_eval_result: Any) -> bool:
    return bool(current_eval_result["auc"] > best_eval_result["auc"])


@pytest.mark.parametrize("compare_fn", [better("auc", "max"), newer_is_better])
def test_a_record_without_the_metric_is_no_best(tmp_path: Any, writer: Writer, compare_fn: Any, caplog: Any) -> None:
    assert run(BestExporter(), tmp_path, writer, 1, loss=0.1).is_best
    exporter = BestExporter(compare_fn=compare_fn)
    assert run(exporter, tmp_path, writer, 2, loss=0.9, auc=0.5).is_best
    assert "the best so far, of step 1, was evaluated without auc; the best is chosen again" in caplog.text
    assert run(exporter, tmp_path, writer, 3, loss=0.9, auc=0.4) is None
    assert run(exporter, tmp_path, writer, 4, loss=0.9, auc=0.6).is_best
    old, new = [{"loss": 0.1}, {"loss": 0.2}], [{"loss": 0.9, "auc": 0.5}, {"loss": 0.9, "auc": 0.4}]
    assert best_of([*old, *new], compare_fn) == 2
    assert best_of(new[:1], compare_fn) == 0


@pytest.mark.parametrize(("found", "words"), [(None, "None, .*lack a return"), (1, "1, expected"), ("yes", "'yes'")])
def test_compare_fn_returns_true_or_false(tmp_path: Any, writer: Writer, found: Any, words: str) -> None:
    exporter = BestExporter(compare_fn=lambda best_eval_result, current_eval_result: found)
    with pytest.raises(ArgumentTypeError, match=f"^compare_fn returned {words}"):
        run(exporter, tmp_path, writer, 1)
    assert exported(tmp_path, "best") == {}


@pytest.mark.parametrize(
    "change",
    [{"step": "x"}, {"metrics": 3}, {"version": None}, {"path": "../../elsewhere"}, {"path": "9"}, {"path": 1}],
)
def test_a_damaged_record_is_an_error(tmp_path: Any, writer: Writer, change: dict[str, Any]) -> None:
    run(BestExporter(), tmp_path, writer, 1)
    file = tmp_path / "export" / "best" / "best.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(CheckpointError, match=r"best.json: damaged: .*; remove it to choose a best export again"):
        run(BestExporter(), tmp_path, writer, 2, loss=0.0)


def test_the_record_is_plain_json_and_moves_with_its_directory(tmp_path: Any, writer: Writer) -> None:
    (tmp_path / "a").mkdir()
    run(BestExporter(), tmp_path / "a", writer, 7, recall=math.nan)
    record = json.loads((tmp_path / "a" / "export" / "best" / "best.json").read_text(), parse_constant=pytest.fail)
    assert record == {
        "step": 7,
        "metrics": {"loss": 1.0, "global_step": 7.0, "recall": "nan"},
        "version": 1,
        "path": "1",
    }
    os.rename(tmp_path / "a", tmp_path / "b")
    best = BestExporter().best(str(tmp_path / "b"))
    assert best is not None
    assert best.path == str(tmp_path / "b" / "export" / "best" / "1")


def test_exporters_travel() -> None:
    for exporter in (BestExporter(), LatestExporter("l", exports_to_keep=3), FinalExporter("f")):
        assert pickle.loads(pickle.dumps(exporter)) == exporter
