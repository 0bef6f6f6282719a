from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.files import DataFile, check_unchanged, open_file, read_bytes, unchanged
from psflow.ps_runtime.tabular_files.listing import list_files
from tests.ps_runtime.tabular_files.reading import rewrite


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as Spark and people leave them."""
    for name in ("b.csv", "a.csv", "x.csv/part-1.csv", "x.csv/part-0.csv", "x.csv/_SUCCESS", "_temporary/0/c.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name in (".hidden.csv", "_meta.csv", "README.md", "x.csv/.part-0.csv.crc"):
        (tmp_path / name).write_text(name)
    return tmp_path


def names(files: tuple[DataFile, ...], folder: Path) -> list[str]:
    return [os.path.relpath(file.url, folder) for file in files]


ALL = ["a.csv", "b.csv", "x.csv/part-0.csv", "x.csv/part-1.csv"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("", ALL),
        ("x.csv", ALL[2:]),  # a folder, whatever its name
        ("a.csv", ["a.csv"]),
        ("_meta.csv", ["_meta.csv"]),
        ("README.md", ["README.md"]),
        ("[ab].csv", ALL[:2]),
        ("*.csv", ALL),
        ("**/*.csv", ALL),
    ],
)
def test_what_a_path_stands_for(folder: Path, given: str, found: list[str]) -> None:
    assert names(list_files(folder / given, ".csv"), folder) == found


def test_a_list_keeps_its_order(folder: Path) -> None:
    assert names(list_files([folder / "x.csv", str(folder / "b.csv")], [".csv"]), folder) == [*ALL[2:], "b.csv"]


def test_what_exists_is_no_glob(tmp_path: Path) -> None:
    for name in ("a[1].csv", "a1.csv"):
        (tmp_path / name).write_text("x")
    assert names(list_files(tmp_path / "a[1].csv", [".csv"]), tmp_path) == ["a[1].csv"]


def test_relative_paths_become_absolute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert list_files("a.csv", [".csv"])[0].url == str(folder / "a.csv")
    assert list_files(f"file://{folder}/a.csv", [".csv"])[0].url == str(folder / "a.csv")


def test_links_to_one_file_are_many_files(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("x")
    for i in range(1, 200):
        (tmp_path / f"{i}.csv").symlink_to("0.csv")
    files = list_files(tmp_path, [".csv"])
    assert len({file.url for file in files}) == 200


def test_links_to_folders_are_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "linked.csv").write_text("x")
    (folder / "y").symlink_to(other)
    assert names(list_files(folder, [".csv"]), folder) == [*ALL, "y/linked.csv"]
    assert names(list_files(folder / "*" / "l*.csv", [".csv"]), folder) == ["y/linked.csv"]


def test_a_link_to_nothing_is_a_missing_file(folder: Path) -> None:
    (folder / "c.csv").symlink_to("gone.csv")
    with pytest.raises(InputError, match="there is no file"):
        list_files(folder, [".csv"])


def test_a_link_to_a_folder_above_is_refused(folder: Path) -> None:
    (folder / "x.csv" / "again").symlink_to(folder)
    with pytest.raises(InputError, match="again is a link to a folder that contains it; remove the link"):
        list_files(folder, [".csv"])


def test_a_url_finds_files_and_tells_when_they_change() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe({"/psflow-files/a.csv": b"a", "/psflow-files/b/c.csv": b"bc"})
    try:
        files = list_files("memory://psflow-files", [".csv"])
        assert [(file.url, file.size) for file in files] == [
            ("memory://psflow-files/a.csv", 1),
            ("memory://psflow-files/b/c.csv", 2),
        ]
        assert list_files("memory://psflow-files/*.csv", [".csv"]) == files[:1]
        with open_file(files[1]) as opened:
            assert read_bytes(files[1], opened, 1, 2) == b"c"
        check_unchanged(files[1])
        fs.pipe("/psflow-files/b/c.csv", b"xy")
        with pytest.raises(InputError, match=r"^memory://psflow-files/b/c.csv has changed since it was scanned"):
            check_unchanged(files[1])
    finally:
        fs.rm("/psflow-files", recursive=True)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("none.csv", "^there is no file /.*/none.csv$"),
        (
            "$DATA/a.csv",
            r"^there is no file /.*/\$DATA/a.csv; a variable such as \$DATA is not replaced: write the path",
        ),
        ("dangling.csv", "^/.*/dangling.csv is a link to gone.csv, which does not exist; correct the link$"),
        ("loop.csv", "^cannot read /.*/loop.csv: Too many levels of symbolic links$"),
        ("a" * 300, "^cannot read /.*a: File name too long$"),
        ("a\0.csv", "^cannot read /.*.csv: .*embedded null byte$"),
        ("zero.csv/a.csv", "^cannot read /.*/zero.csv/a.csv: Not a directory$"),
        ("none/*.csv", r"^nothing matches /.*/none/\*.csv$"),
        ("empty", "^/.*/empty has no files that end with .csv or .tsv$"),
        ("zero.csv", "^/.*/zero.csv is empty$"),
        ("a.csv.gz", "^/.*/a.csv.gz is compressed: decompress it first"),
        ("zipped", "^/.*/zipped/a.csv.gz is compressed"),  # not skipped in silence
        ("pipe.csv", "^/.*/pipe.csv is not a file$"),
    ],
)
def test_what_is_no_input(tmp_path: Path, given: str, fault: str) -> None:
    for name in ("empty", "zipped"):
        (tmp_path / name).mkdir()
    (tmp_path / "empty" / "README.md").write_text("x")
    (tmp_path / "zero.csv").touch()
    for name in ("a.csv.gz", "zipped/a.csv.gz", "zipped/b.csv"):
        (tmp_path / name).write_text("x")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "dangling.csv").symlink_to("gone.csv")
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    with pytest.raises(InputError, match=fault):
        list_files(tmp_path / given, [".csv", ".tsv"])


def test_all_faulty_paths_are_reported_together(folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        list_files([folder / "none.csv", folder / "a.csv", folder, "what://x", "s3://k:s3cret@b/a.csv"], [".csv"])
    assert caught.value.faults == (
        f"there is no file {folder}/none.csv",
        f"{folder}/a.csv occurs twice: expected each file once",
        "cannot read what://x: Protocol not known: what",
        "s3://b/a.csv: the URL holds a credential, and a record index keeps URLs; leave it to the environment of the "
        "process",
    )
    with pytest.raises(InputError, match="no files are given"):
        list_files([], [".csv"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_refused(folder: Path) -> None:
    (folder / "a.csv").chmod(0)
    with pytest.raises(InputError, match=r"^cannot read /.*/a.csv: Permission denied"):
        list_files(folder, [".csv"])


def test_a_file_that_changes_is_reported(folder: Path) -> None:
    path = folder / "a.csv"
    (file,) = list_files(path, [".csv"])
    check_unchanged(file)

    def read() -> None:
        with unchanged(file):
            rewrite(path, b"A.csv")
            raise ValueError("what is made of the new content")

    with pytest.raises(InputError, match="was rewritten; run the command again"):
        read()
    path.write_text("longer than before")
    with pytest.raises(InputError, match="its size was 5, now 18 bytes"):
        check_unchanged(file)
    path.unlink()
    with pytest.raises(InputError, match="there is no file"):
        check_unchanged(file)


def test_a_file_that_becomes_shorter_is_not_read_beyond_its_end(folder: Path) -> None:
    (file,) = list_files(folder / "a.csv", [".csv"])
    with open_file(file) as opened:
        os.truncate(file.url, 3)
        with pytest.raises(InputError, match="ends at byte 3, expected 5"):
            read_bytes(file, opened, 0, 5)


def test_a_data_file_shows_no_credential() -> None:
    file = DataFile("https://host/a.csv?X-Amz-Signature=s3cret", 1, "0")
    assert "s3cret" not in repr(file) + file.shown
