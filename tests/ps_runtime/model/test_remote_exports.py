"""Exports below a URL: complete or ignored, each checkpoint once, whichever process dies or wakes up when."""

from __future__ import annotations

import contextlib
import math
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.config.environment import environment
from psflow.ps_runtime.errors import CheckpointError, LostDirectoryError, StorageError
from psflow.ps_runtime.model.best import BestRecord
from psflow.ps_runtime.model.export import directory as module
from psflow.ps_runtime.model.export.bundle import ExportBundle
from psflow.ps_runtime.model.export.directory import ExportDirectory, is_exported, local_export
from psflow.ps_runtime.model.export.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
from tests.ps_runtime.model.test_exporters import bundle
from tests.s3_server import running_s3


class KilledError(Exception):
    """The end of a process."""


class Writer:
    """Writes two files of the step, one of them in a folder."""

    def write(self, directory: str, bundle: ExportBundle) -> None:
        os.makedirs(os.path.join(directory, "data"))
        for name in ("MLmodel", "data/step"):
            Path(directory, name).write_text(str(bundle.global_step))


@pytest.fixture
def model_dir() -> str:
    return f"memory://{uuid.uuid4().hex}/model"


def run(exporter: Exporter, model_dir: str, step: int, **options: Any) -> Any:
    metrics = {name: value for name, value in options.items() if name == "loss"}
    others = {"is_the_final_export": True} | {name: value for name, value in options.items() if name != "loss"}
    return exporter.export(model_dir, bundle(step, **metrics), Writer(), **others)


def exported(model_dir: str, name: str = "latest") -> dict[int, int]:
    """Return version -> step of the complete exports, each with all its files."""
    found = {}
    directory = ExportDirectory(f"{model_dir}/export/{name}")
    for version in directory.versions():
        path = directory.version_path(version)
        assert is_exported(path)
        with local_export(path) as folder:
            assert sorted(os.listdir(folder)) == ["MLmodel", "data", "export.json"]
            found[version] = int(Path(folder, "data", "step").read_text())
    return found


def killed_at(number: int, method: str) -> Callable[..., Any]:
    """Return a method of `FileStore` that ends the process at its call of that number."""
    calls, call = [0], getattr(FileStore, method)

    def killed(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            raise KilledError
        return call(*arguments, **options)

    return killed


def test_the_newest_exports_are_kept_with_all_their_files(model_dir: str) -> None:
    for step in (10, 20, 30):
        assert run(LatestExporter("latest", exports_to_keep=2), model_dir, step).path.endswith(f"/latest/{step // 10}")
    assert exported(model_dir) == {2: 20, 3: 30}
    assert FileStore(model_dir).names("export/latest") == ["2", "3"]


@pytest.mark.parametrize("exporter", [BestExporter("e"), LatestExporter("e"), FinalExporter("e")])
def test_a_checkpoint_is_exported_once_however_often_it_is_evaluated(model_dir: str, exporter: Exporter) -> None:
    for _ in range(3):
        run(exporter, model_dir, 10)
    assert exported(model_dir, "e") == {1: 10}


@pytest.mark.parametrize("file", [1, 2])
def test_an_export_that_a_killed_process_began_does_not_count(
    model_dir: str, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = BestExporter("latest")
    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "send", killed_at(file, "send"))
        with pytest.raises(KilledError):
            run(exporter, model_dir, 10)
    directory = ExportDirectory(f"{model_dir}/export/latest")
    assert directory.versions() == []
    assert exporter.best(model_dir) is None
    half = directory.version_path(1)
    assert not is_exported(half)
    with pytest.raises(FileNotFoundError, match="there is no complete export in memory://"), local_export(half):
        pass
    assert run(exporter, model_dir, 10).version == 2  # the process may still be about to send a file
    assert exported(model_dir) == {2: 10}
    assert FileStore(model_dir).names("export/latest") == ["2", "best.json"]


def test_what_others_write_stays_until_it_is_old(model_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "send", killed_at(2, "send"))
        with pytest.raises(KilledError):
            run(LatestExporter("latest"), model_dir, 10)
    run(LatestExporter("latest"), model_dir, 20)
    assert FileStore(model_dir).names("export/latest") == ["1", "2"]
    monkeypatch.setattr(module, "ABANDONED_SECS", -1.0)
    run(LatestExporter("latest"), model_dir, 30)
    assert FileStore(model_dir).names("export/latest") == ["2", "3"]
    assert exported(model_dir) == {2: 20, 3: 30}


def stopped_while(monkeypatch: pytest.MonkeyPatch, model_dir: str, step: int) -> list[Any]:
    """Have a process stop in the first send, while another one exports the checkpoint of `step`."""
    send, successor = FileStore.send, list[Any]()

    def stopped(self: FileStore, path: str, name: str) -> None:
        if not successor:
            successor.append(None)  # the calls of the successor send at once
            successor.append(run(LatestExporter("latest"), model_dir, step))
        send(self, path, name)

    monkeypatch.setattr(FileStore, "send", stopped)
    return successor


def test_a_process_that_wakes_up_after_its_successor_has_the_export_of_that(
    model_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    successor = stopped_while(monkeypatch, model_dir, 10)
    assert run(LatestExporter("latest"), model_dir, 10) == successor[1]
    assert exported(model_dir) == {2: 10}


def test_a_process_that_wakes_up_after_an_export_of_another_checkpoint_completes_nothing(
    model_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ABANDONED_SECS", -1.0)
    stopped_while(monkeypatch, model_dir, 20)
    words = r"latest/1: another process has removed this unfinished export: .*; run the same command again$"
    with pytest.raises(LostDirectoryError, match=words):
        run(LatestExporter("latest"), model_dir, 10)
    assert exported(model_dir) == {2: 20}


def test_a_process_that_may_no_longer_write_completes_nothing(model_dir: str) -> None:
    def fence() -> None:
        raise LostDirectoryError("run", "it has another owner")

    with pytest.raises(LostDirectoryError, match="another owner"):
        run(LatestExporter("latest"), model_dir, 10, fence=fence)
    assert FileStore(model_dir).names("") == []


def test_a_choice_of_a_person_meanwhile_is_compared_again(model_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = BestExporter("latest")
    run(exporter, model_dir, 10, loss=0.5)
    url, has_chosen = f"{model_dir}/export/latest", []
    find = ExportDirectory.find

    def slow(self: ExportDirectory, *arguments: Any) -> int | None:
        if not has_chosen:
            has_chosen.append(True)
            BestRecord(7, {"loss": 0.1, "recall": math.nan}, 1, f"{url}/1").write(url)
        return find(self, *arguments)

    monkeypatch.setattr(ExportDirectory, "find", slow)
    assert run(exporter, model_dir, 20, loss=0.3) is None
    best = exporter.best(model_dir)
    assert best is not None
    assert (best.step, best.version) == (7, 1)


losses = st.one_of(st.just(math.nan), st.integers(0, 5).map(float))
CRASHES = [("", 0), *((method, number) for method in ("change", "send") for number in (1, 2, 3))]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(losses, st.sampled_from(CRASHES)), max_size=10))
def test_best_equals_an_oracle_over_restarts_at_any_point(evaluations: list[tuple[float, tuple[str, int]]]) -> None:
    """The oracle: the first of the smallest finite losses. Each crash is followed by a rerun."""
    model_dir = f"memory://{uuid.uuid4().hex}/model"
    exporter = BestExporter("best", exports_to_keep=2)
    seen: list[tuple[float, int]] = []
    for step, (loss, (method, number)) in enumerate(evaluations):
        if method:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(FileStore, method, killed_at(number, method))
                with contextlib.suppress(KilledError):
                    run(exporter, model_dir, step, loss=loss)
        run(exporter, model_dir, step, loss=loss)
        seen += [(loss, step)] if math.isfinite(loss) else []
        best = exporter.best(model_dir)
        assert (None if best is None else best.step) == (min(seen)[1] if seen else None)
        steps = exported(model_dir, "best")
        assert best is None or steps[best.version] == best.step
        assert len(set(steps.values())) == len(steps) <= 2


@pytest.mark.parametrize("content", [b"{}", b"[", b'{"step": 1, "saved_at": "x", "began_at": 1, "writer": null}'])
def test_a_damaged_record_is_an_error(model_dir: str, content: bytes) -> None:
    path = run(LatestExporter("latest"), model_dir, 10).path
    FileStore(path).put("export.json", content)
    with pytest.raises(CheckpointError, match=r"latest/1/export.json: damaged: .*; remove this export"):
        run(LatestExporter("latest"), model_dir, 20)


def test_a_writer_that_writes_nothing_is_an_error(model_dir: str) -> None:
    class Lazy:
        def write(self, directory: str, bundle: ExportBundle) -> None:
            """Write nothing at all."""

    with pytest.raises(StorageError, match="export could not be written: No such file or directory"):
        LatestExporter("latest").export(model_dir, bundle(), Lazy(), is_the_final_export=False)
    assert FileStore(model_dir).names("") == []


@pytest.fixture(scope="module")
def s3_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_s3(tmp_path_factory.mktemp("s3")) as running, environment(running.environment):
        yield "s3://bucket/run"
    fsspec.filesystem("s3").clear_instance_cache()


@pytest.mark.process(shared=True)
def test_several_processes_at_once_write_versions_of_their_own(s3_dir: str) -> None:
    steps = range(10, 15)
    with ThreadPoolExecutor(len(steps)) as threads:
        results = list(threads.map(lambda step: run(LatestExporter("latest"), s3_dir, step), steps))
    assert exported(s3_dir) == {result.version: result.global_step for result in results}
    assert sorted(exported(s3_dir).values()) == list(steps)
    assert all(result.path == f"{s3_dir}/export/latest/{result.version}" for result in results)
    assert run(LatestExporter("latest", exports_to_keep=1), s3_dir, 20).version == 6
    assert FileStore(s3_dir).names("export/latest") == ["6"]
