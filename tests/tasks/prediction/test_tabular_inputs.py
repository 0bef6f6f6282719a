"""Tabular files to predict: one, several of a folder, those that a glob matches."""

from __future__ import annotations

from pathlib import Path

import pytest

from psflow.ps_runtime.data.record_formats import Csv, LibSvm
from psflow.ps_runtime.errors import InputError
from psflow.tasks.prediction.inputs import open_rows, prediction_input


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Path(tmp_path, "b.csv").write_text("x\n3\n")
    Path(tmp_path, "a.csv").write_text("x\n1\n2\n")
    return tmp_path


@pytest.mark.parametrize(("name", "kind"), [("", Csv), ("*.csv", None)])
def test_files_are_predicted_one_after_the_other(folder: Path, name: str, kind: type[Csv] | None) -> None:
    trained = Csv(path=str(folder)).read().learn("error", "the train input").schema()
    opened = open_rows(prediction_input(str(folder / name), kind), trained)
    parts = list(opened.partitions())
    assert [(Path(part.file).name, part.first_in_file) for part in parts] == [("a.csv", 0), ("b.csv", 0)]
    read = [block.rows["x"].to_pylist() for part in parts for block in opened.blocks(part, None)]
    assert read == [[1, 2], [3]]


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("", None, "or set format=NAME"),
        ("c.csv", None, "there is no file"),
        ("c*.csv", None, "nothing matches"),
        ("empty", Csv, r"has no files that end with \.csv"),
    ],
)
def test_what_is_not_there_is_refused(folder: Path, name: str, kind: type[Csv] | None, words: str) -> None:
    Path(folder, "empty").mkdir()
    with pytest.raises(InputError, match=words):
        prediction_input(str(folder / name), kind)


def test_libsvm_begins_at_the_index_that_training_had(tmp_path: Path) -> None:
    Path(tmp_path, "train.svm").write_text("0 0:1 2:3\n")
    Path(tmp_path, "new.svm").write_text("0 1:5\n")
    training = LibSvm(str(tmp_path / "train.svm"), zero_based=True).read().learn("error", "the train input")
    opened = open_rows(prediction_input(str(tmp_path / "new.svm")), training.schema())
    [block] = [block for part in opened.partitions() for block in opened.blocks(part, None)]
    assert block.rows["features"].to_pylist() == [[0, 5, 0]]
