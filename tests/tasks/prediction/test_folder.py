from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint import files
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.tasks.prediction.folder import OutputError, PredictionFolder
from psflow.tasks.prediction.part_facts import CellCount, PartFacts, all_not_finite
from psflow.tasks.prediction.partitions import Partition
from tests.tasks.prediction.scoring import facts, part

JOB: dict[str, Any] = {"model": "u", "input": "d", "records": 9}
PARTS = [part(0, 0, 3), part(1, 3, 6), part(2, 6, 9)]


def begun(tmp_path: Path) -> PredictionFolder:
    folder = PredictionFolder(str(tmp_path / "out"))
    folder.begin(JOB, None)
    return folder


def finish(folder: PredictionFolder, *parts: Partition, **changes: Any) -> None:
    for one in parts:
        with folder.writing(f"{one.name}.csv") as stream:
            stream.write(b"x\n1")
        folder.note_part(one, facts(one, **changes))


def test_looking_at_a_folder_changes_nothing(tmp_path: Path) -> None:
    PredictionFolder(str(tmp_path / "out")).check(JOB)
    assert not (tmp_path / "out").exists()


def test_a_part_counts_once_its_facts_are_there(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    finish(folder, PARTS[1])
    with folder.writing(f"{PARTS[0].name}.csv") as stream:  # killed before its facts
        stream.write(b"x\n1")
    again = PredictionFolder(folder.url)
    again.begin(JOB, None)
    assert list(again.finished(PARTS)) == [1]


@pytest.mark.parametrize(
    "changes", [{"num_bytes": 4}, {"rows": 2}, {"first_record": 0}, {"rows": 2, "rejects": 2}, {"rejects": 1}]
)
def test_a_part_that_is_not_that_of_its_partition_does_not_count(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = begun(tmp_path)
    finish(folder, PARTS[1], **changes)
    assert folder.finished(PARTS) == {}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": 3}'])
def test_damaged_facts_do_not_count(tmp_path: Path, content: bytes) -> None:
    folder = begun(tmp_path)
    finish(folder, PARTS[1])
    Path(folder.url, "_parts", "part-00001.json").write_bytes(content)
    assert folder.finished(PARTS) == {}


def test_the_names_of_parts_are_durable_before_the_mark_of_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    replace, sync = os.replace, files.fsync_directory

    def replaced(source: str, target: str) -> None:
        calls.append(Path(target).name)
        replace(source, target)

    def synced(directory: str) -> None:
        calls.append(f"{Path(directory).name}/")
        sync(directory)

    folder = begun(tmp_path)
    monkeypatch.setattr(os, "replace", replaced)
    monkeypatch.setattr(files, "fsync_directory", synced)
    finish(folder, *PARTS)
    parts, calls[:] = [call for call in calls if call.startswith("part-")], []
    assert parts == [name for part in PARTS for name in (f"{part.name}.csv", f"{part.name}.json")]
    folder.complete(PARTS, {})
    assert calls == ["_manifest.json", "out/", "_SUCCESS", "out/"]


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    finish(folder, PARTS[0])
    left = [Path(folder.url, name) for name in (".part-00001.csv.0a1b.tmp", "_parts/.part-00001.json.77.tmp")]
    for path in left:
        path.write_bytes(b"half")
    folder.begin(JOB, None)
    assert not any(path.exists() for path in left)
    assert list(folder.finished(PARTS)) == [0]
    left[0].write_bytes(b"a Dask worker was killed, the flow was not")
    finish(folder, *PARTS[1:])
    folder.complete(PARTS, {})
    assert not left[0].exists()


def test_a_folder_of_another_job_is_refused_with_what_differs(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    with pytest.raises(UsageError) as caught:
        folder.check({**JOB, "model": "v", "output_format": "csv"})
    first, *lines = caught.value.faults
    assert first.endswith("holds predictions of another job; choose another folder, or empty it")
    assert lines == ['  model is "u" there, here "v"', '  output_format is nothing there, here "csv"']


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds other files, such as notes.txt; choose another"):
        PredictionFolder(str(tmp_path)).check(JOB)


def test_a_folder_of_a_prediction_that_was_killed_as_it_began_is_free(tmp_path: Path) -> None:
    for name in ("_index", "_owner.json", ".owner.lock", "._job.json.12.tmp"):
        (tmp_path / name).write_bytes(b"")
    PredictionFolder(str(tmp_path)).check(JOB)


@pytest.mark.parametrize("content", [b"", b'{"model": ', b"\xff\x00", b"[]", b"{}"])
def test_a_folder_with_a_damaged_description_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "_job.json").write_bytes(content)
    with pytest.raises(UsageError, match=f"^{tmp_path}/_job.json, .*is damaged; choose another output folder"):
        PredictionFolder(str(tmp_path)).check(JOB)


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_index").write_bytes(b"x" * 100)
    with pytest.raises(InputError, match="the record index is damaged"):
        PredictionFolder(str(tmp_path)).index()


def test_the_mark_of_success_comes_last_behind_a_manifest_of_all_parts(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    finish(folder, *PARTS[:2])
    finish(folder, PARTS[2], rows=1, rejects=2)
    assert not folder.is_complete
    folder.complete(PARTS, {"model": {"uuid": "u"}})
    assert folder.is_complete
    manifest = json.loads(Path(folder.url, "_manifest.json").read_text())
    assert (manifest["rows"], manifest["rejects"], manifest["model"]) == (7, 2, {"uuid": "u"})
    assert [PartFacts.from_json(json.dumps(one).encode()).first_record for one in manifest["parts"]] == [0, 3, 6]


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda out: Path(out, "part-00001.csv").unlink(), "1 parts are missing, such as part-00001; empty the folder"),
        (lambda out: Path(out, "part-00003.csv").touch(), r"part-00003\.csv is not one of its 3 parts"),
    ],
)
def test_a_folder_that_is_not_whole_gets_no_mark(tmp_path: Path, break_it: Any, words: str) -> None:
    folder = begun(tmp_path)
    finish(folder, *PARTS)
    break_it(folder.url)
    with pytest.raises(OutputError, match=words):
        folder.complete(PARTS, {})
    assert not folder.is_complete


def test_a_part_of_parquet_has_the_rows_that_its_facts_say(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    folder = begun(tmp_path)
    path = Path(folder.url, "part-00000.parquet")
    parquet.write_table(pa.table({"x": [1, 2]}), path)
    folder.note_part(PARTS[0], facts(PARTS[0], path.stat().st_size, name=path.name))
    with pytest.raises(OutputError, match=r"part-00000\.parquet are not complete: it has 2 rows, expected 3"):
        folder.complete(PARTS[:1], {})


def test_cells_that_are_not_finite_are_counted_over_all_parts_with_the_first_place() -> None:
    found = [
        facts(PARTS[0], not_finite_rows=2, not_finite={"column 'a'": CellCount(2, "in.csv", 3)}),
        facts(
            PARTS[1], not_finite_rows=1, not_finite={name: CellCount(1, "in.csv", 9) for name in ("column 'a'", "b")}
        ),
    ]
    assert all_not_finite(found) == {
        "rows": 3,
        "columns": {
            "column 'a'": {"cells": 3, "first_row": 3, "file": "in.csv"},
            "b": {"cells": 1, "first_row": 9, "file": "in.csv"},
        },
    }
