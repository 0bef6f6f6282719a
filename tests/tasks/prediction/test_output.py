from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psflow.ps_runtime.errors import UsageError
from psflow.tasks.prediction.output import OutputError, PredictionFolder, partitions, to_csv

JOB = {"model": "u", "input": "d", "rows": 20}


@given(st.integers(1, 10**7))
def test_partitions_hold_each_row_once_in_order(num_rows: int) -> None:
    parts = partitions(num_rows)
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == num_rows
    assert all(0 < part.stop - part.start <= 50_000 for part in parts)
    assert len(parts) >= min(num_rows, 8)
    assert [part.name for part in parts] == sorted(part.name for part in parts)


def test_csv_flattens_arrays_and_keeps_every_bit() -> None:
    values = np.array([[0.1, 1 / 3], [1e-30, 3.4e38]], np.float32)
    lines = to_csv({"class_ids": np.array([3, 4]), "p": values}).decode().splitlines()
    assert lines[0].replace('"', "") == "class_ids,p_0,p_1"
    read = np.array([line.split(",")[1:] for line in lines[1:]]).astype(np.float32)
    np.testing.assert_array_equal(read, values)


def test_csv_of_deep_arrays_and_strings() -> None:
    content = to_csv({"a": np.arange(8).reshape(2, 2, 2), "s": np.array(["x,y", "z"])}).decode()
    assert content.splitlines()[0].replace('"', "") == "a_0,a_1,a_2,a_3,s"
    assert content.splitlines()[1] == '0,1,2,3,"x,y"'


def test_folder_of_an_interrupted_job_goes_on(tmp_path: Path) -> None:
    folder, parts = PredictionFolder(str(tmp_path / "out")), partitions(20)
    folder.check(JOB)
    assert not (tmp_path / "out").exists()
    folder.claim(JOB)
    folder.put(parts[1], b"x\n1\n")
    again = PredictionFolder(str(tmp_path / "out"))
    again.claim(JOB)
    assert again.finished(parts) == [parts[1]]


def test_folder_of_another_job(tmp_path: Path) -> None:
    PredictionFolder(str(tmp_path)).claim(JOB)
    with pytest.raises(UsageError, match=r"holds predictions of another model or input: choose another folder"):
        PredictionFolder(str(tmp_path)).claim(JOB | {"model": "v"})


def test_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds other files, such as notes.txt: choose another"):
        PredictionFolder(str(tmp_path)).check(JOB)


@pytest.mark.parametrize("content", [b"", b'{"model": ', b"\xff\x00"])
def test_folder_with_a_damaged_description(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "_job.json").write_bytes(content)
    with pytest.raises(UsageError, match=f"^{tmp_path}/_job.json, .*is damaged: choose another folder"):
        PredictionFolder(str(tmp_path)).check(JOB)


def test_verify_counts_rows(tmp_path: Path) -> None:
    folder, parts = PredictionFolder(str(tmp_path)), partitions(20)
    folder.claim(JOB)
    for part in parts[:-1]:
        folder.put(part, to_csv({"x": np.arange(part.start, part.stop)}))
    with pytest.raises(OutputError, match="expected 8 parts, found 7 files"):
        folder.verify(parts)
    folder.put(parts[-1], to_csv({"x": np.arange(1)}))
    with pytest.raises(OutputError, match=r"part-00007.csv are not complete: 1 rows, expected 3"):
        folder.verify(parts)
    folder.put(parts[-1], to_csv({"x": np.arange(3)}))
    assert folder.verify(parts) == 20
