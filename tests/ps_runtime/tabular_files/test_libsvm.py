from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.libsvm import MAX_INFERRED_FEATURES, LibSvmText
from tests.ps_runtime.tabular_files.reading import index_of, read_all, types_of

NOTE = r" \(rows are lines, from 1; lines without a record do not count\): "


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.libsvm"


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def features_of(path: Path, record_format: LibSvmText) -> list[list[float]]:
    found: list[list[float]] = read_all(index_of(path, record_format))["features"].to_pylist()
    return found


@settings(max_examples=30)
@given(
    matrix=st.integers(1, 5).flatmap(
        lambda width: st.lists(
            st.lists(st.sampled_from([0, 0, 1.5, -2e-3, 1e20]), min_size=width, max_size=width), min_size=1, max_size=9
        )
    ),
    zero_based=st.booleans(),
    chunk_bytes=st.integers(1, 60),
)
def test_it_is_what_scikit_learn_reads(matrix: list[list[float]], zero_based: bool, chunk_bytes: int) -> None:
    labels = np.arange(len(matrix)) % 3 - 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.svm")
        dump_svmlight_file(np.array(matrix), labels, str(path), zero_based=zero_based, comment="made up")
        expected, expected_labels = load_svmlight_file(
            str(path), n_features=len(matrix[0]), dtype=np.float32, zero_based=zero_based
        )
        record_format = LibSvmText(num_features=len(matrix[0]), zero_based=zero_based)
        table = read_all(index_of(path, record_format, chunk_bytes=chunk_bytes))
        np.testing.assert_array_equal(np.array(table["features"].to_pylist(), np.float32), expected.toarray())
        np.testing.assert_array_equal(table["label"].to_numpy(), expected_labels)


def test_the_largest_index_of_the_first_file_says_how_many_features_there_are(tmp_path: Path) -> None:
    write(tmp_path / "a.svm", "+1 1:.5 7:2", "-1 2:1e-3  # a comment", "", "# a comment", "-1")
    write(tmp_path / "b.svm", "0.5 1:1\r")
    index = index_of(tmp_path, LibSvmText(), chunk_bytes=8)
    assert types_of(index) == {"label": "float64", "features": "float32[7]"}
    assert index.num_records == 4
    assert read_all(index)["label"].to_pylist() == [1, -1, -1, 0.5]
    write(tmp_path / "b.svm", "1 1:1", "1 8:1")
    with pytest.raises(InputError, match=rf"b\.svm, row 2{NOTE}index 8: expected indices from 1 to 7, as there are 7"):
        index_of(tmp_path, LibSvmText())


def test_indices_begin_where_they_are_said_to(path: Path) -> None:
    write(path, "1 0:5 2:6", "0 1:7")
    assert features_of(path, LibSvmText(zero_based=True)) == [[5, 0, 6], [0, 7, 0]]
    write(path, "1 1:5 3:6", "0 2:7")
    assert features_of(path, LibSvmText(zero_based=True)) == [[0, 5, 0, 6], [0, 0, 7, 0]]
    assert features_of(path, LibSvmText(num_features=4)) == [[5, 0, 6, 0], [0, 7, 0, 0]]


def test_labels_alone_need_no_features(path: Path) -> None:
    index = index_of(write(path, "+3 1:1", "4"), LibSvmText(), columns=["label"])
    assert read_all(index).to_pydict() == {"label": [3, 4]}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("1 2", "expected a label and then pairs such as 3:0.5, got '2'"),
        ("1 2:", "got '2:'"),
        ("1 2:x", "got '2:x'"),
        ("1 a:1", "got 'a:1'"),
        ("1 1.5:1", "got '1.5:1'"),
        ("1 1:2:3", "got '1:2:3'"),
        ("1 1: 2", "got '2'"),
        ("1:2 2:3", "got '1:2' in place of the label"),
        ("1 qid:7 1:2", "'qid:7' is a query id, which psflow does not read; remove it"),
        ("yes 1:2", r"column 'label' expects a (whole )?number.*, got 'yes'"),
        ("1,2 1:2", "column 'label' expects .*, got '1,2'"),
        ("1 0:2", "index 0: expected indices from 1; if the first feature has index 0, set zero_based: true"),
        ("1 -1:2", "index -1: expected indices from 1 to 3"),
        ("1 4:2", "index 4: expected indices from 1 to 3, as there are 3 features; correct the line"),
        ("1 2:1 1:1", "index 1 comes after 2: expected ascending indices"),
        ("1 2:1 2:1", "index 2 comes after 2"),
        ("1 2:\udcff", "expected UTF-8, got"),
    ],
)
def test_a_line_that_is_wrong_is_named(path: Path, line: str, fault: str) -> None:
    text = "# of a person\n1 1:1\n0 3:1\n" + line + "\n0 1:1\n"
    path.write_bytes(text.encode(errors="surrogateescape"))
    for chunk_bytes in (8, 1000):
        with pytest.raises(InputError, match=rf"t\.libsvm, row 3{NOTE}(expected a label .*)?{fault}"):
            index_of(path, LibSvmText(num_features=3, types={"label": "float64"}), chunk_bytes=chunk_bytes)


def test_a_wrong_line_is_named_where_the_number_of_features_is_inferred(path: Path) -> None:
    write(path, "1 1:1", "1 3:1 2:1")
    with pytest.raises(InputError, match=rf"row 2{NOTE}index 2 comes after 3"):
        index_of(path, LibSvmText())


def test_a_file_that_says_no_number_of_features_is_refused(path: Path) -> None:
    write(path, "1", "0")
    with pytest.raises(InputError, match="has no pair of index and value; set num_features"):
        index_of(path, LibSvmText())
    write(path, f"1 {MAX_INFERRED_FEATURES + 1}:1")
    with pytest.raises(InputError, match=r"the largest index is 4097.*set num_features, but note that"):
        index_of(path, LibSvmText())
    assert types_of(index_of(path, LibSvmText(num_features=5000)))["features"] == "float32[5000]"


def test_a_file_without_records_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.libsvm"):
        index_of(write(path, "# nothing"), LibSvmText(num_features=1))


def test_nan_and_infinity_arrive_as_such(path: Path) -> None:
    np.testing.assert_equal(features_of(write(path, "1 1:nan 2:-inf"), LibSvmText()), [[np.nan, -np.inf]])


def test_chunks_are_cut_so_that_their_matrices_stay_small(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psflow.ps_runtime.tabular_files.libsvm.MATRIX_BYTES", 40)
    index = index_of(write(path, *["1 5:1"] * 7), LibSvmText(num_features=5))
    assert index.first_records.tolist() == [0, 2, 4, 6, 7]
    assert index_of(path, LibSvmText(num_features=1000, types={}), columns=["label"]).num_chunks == 7


def test_options_that_are_wrong() -> None:
    with pytest.raises(InputError, match="num_features is 0: expected a whole number from 1 to 999,999,999") as caught:
        LibSvmText(num_features=0, zero_based="auto", types={"features": "float64"})  # type: ignore[arg-type]
    assert len(caught.value.faults) == 3
