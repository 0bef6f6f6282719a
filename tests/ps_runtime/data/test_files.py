from pathlib import Path

import fsspec
import pytest

from psflow.ps_runtime.data.files import check_file, chosen_names, read_file
from psflow.ps_runtime.errors import InputError


def test_any_url_of_fsspec_can_be_read(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe("/psflow-test/a.csv", b"a\n1\n")
    assert read_file("memory://psflow-test/a.csv") == b"a\n1\n"
    fsspec.filesystem("memory").rm("/psflow-test", recursive=True)
    (tmp_path / "b").write_bytes(b"b")
    assert read_file(f"file://{tmp_path}/b") == read_file(tmp_path / "b") == b"b"


def test_a_missing_file_is_named_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"there is no file {tmp_path}/missing.csv"):
        read_file("missing.csv")
    with pytest.raises(InputError, match=r"there is no file memory://missing\.csv"):
        read_file("memory://missing.csv")


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=f"{tmp_path} is a folder: expected one file; formats of tabular files, such as"
    ):
        read_file(tmp_path)
    with pytest.raises(InputError, match=r"there is no file .*/\*\.npz: expected one file; formats of tabular files"):
        read_file(tmp_path / "*.npz")
    with pytest.raises(InputError, match=r"cannot read nosuch://host/a\.csv: Protocol not known"):
        read_file("nosuch://user:secret@host/a.csv")


def test_a_file_is_checked_without_reading_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psflow.ps_runtime.data.files.MAX_FILE_BYTES", 3)
    (tmp_path / "large").write_bytes(b"1234")
    check_file(tmp_path / "large")
    with pytest.raises(InputError, match="there is no file"):
        check_file(tmp_path / "missing")


def test_a_file_that_is_too_large_or_empty_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="file is empty"):
        read_file(path)
    monkeypatch.setattr("psflow.ps_runtime.data.files.MAX_FILE_BYTES", 3)
    path.write_bytes(b"123")
    assert read_file(path) == b"123"
    path.write_bytes(b"1234")
    with pytest.raises(InputError, match="is larger than 3 bytes, the most that is read into memory"):
        read_file(path)


def test_names_are_those_asked_for_or_all_but_the_label() -> None:
    assert chosen_names("f", "column", ["a", "y", "b"], "y", None) == ("a", "b")
    assert chosen_names("f", "column", ["a", "y", "b"], None, ["b", "a"]) == ("b", "a")
    assert chosen_names("f", "column", ["pixels", "y"], None, "pixels") == ("pixels",)


def test_all_faults_of_names_come_in_one_error() -> None:
    with pytest.raises(InputError) as caught:
        chosen_names("/f", "column", ["height", "y"], "y", ["hieght", "zzz", "y"])
    assert caught.value.faults == (
        "/f has no column 'hieght'; did you mean 'height'?",
        "/f has no column 'zzz'; its columns are 'height', 'y'",
        "/f: column 'y' is requested twice, among features and label",
    )


def test_a_name_that_is_asked_for_is_not_suggested_for_another() -> None:
    with pytest.raises(InputError) as caught:
        chosen_names("/f", "column", ["height", "y"], "y", ["height", "height2"])
    assert caught.value.faults == ("/f has no column 'height2'; its columns are 'height', 'y'",)


def test_many_missing_names_are_one_fault() -> None:
    asked = [f"pixel_{i}" for i in range(64)]
    with pytest.raises(InputError) as caught:
        chosen_names("/f", "column", ["a", "pixel_0"], None, asked)
    assert caught.value.faults == (
        "/f lacks 63 of 64 columns: 'pixel_1', 'pixel_2', 'pixel_3', 'pixel_4', 'pixel_5', ...; "
        "its columns are 'a', 'pixel_0'",
    )


@pytest.mark.parametrize(("known", "features"), [(["y"], None), (["y", "a"], [])])
def test_no_name_left_is_refused(known: list[str], features: list[str] | None) -> None:
    with pytest.raises(InputError, match="/f leaves no column for the features; its columns are 'y'"):
        chosen_names("/f", "column", known, "y", features)
