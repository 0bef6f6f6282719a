from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.data.csv_table import read_csv
from psflow.ps_runtime.data.dataset import MATRIX
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema

TABLE = "a,b,y\n1,2,0\n3.5,,1\n-1e3,nan,1\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_columns_become_one_matrix_and_labels(path: Path) -> None:
    data = read_csv(write(path, TABLE), label="y")
    features, labels = data.read(0, 0, 3)
    np.testing.assert_array_equal(
        features[MATRIX],
        np.array([[1, 2], [3.5, np.nan], [-1000, np.nan]], np.float32),
    )
    np.testing.assert_array_equal(labels, [0, 1, 1])
    features_of, label_of = ArraySpec(MATRIX, "float32", (2,)), ArraySpec("", "int64", ())
    assert data.schema() == InputSchema((features_of,), (label_of,), ("a", "b"), "y")
    assert data.batch_size == 3


def test_columns_are_taken_by_name_in_the_order_asked_for(path: Path) -> None:
    data = read_csv(write(path, "id,b,a\nx,2,1\ny,4,3\n"), features=["a", "b"])
    features, labels = data.read(0, 0, 2)
    assert features[MATRIX].tolist() == [[1, 2], [3, 4]]
    assert labels is None
    assert data.columns == ("a", "b")


def test_labels_that_are_fractions_are_float32(path: Path) -> None:
    data = read_csv(write(path, "a,y\n1,2\n1,0.5\n"), "y")
    assert data.labels.dtype == np.float32
    assert data.labels.tolist() == [2, 0.5]


@pytest.mark.parametrize(("text", "dtype"), [("a,y\n1,2\n1,\n", np.float64), ("a,y\n1,2\n1,\n1,0.5\n", np.float32)])
def test_a_label_that_is_blank_is_nan(path: Path, text: str, dtype: type) -> None:
    data = read_csv(write(path, text), "y")
    assert data.labels.dtype == dtype
    assert np.isnan(data.labels).tolist()[:2] == [False, True]


def test_large_integer_labels_stay_exact(path: Path) -> None:
    assert read_csv(write(path, f"a,y\n1,{2**53 + 1}\n"), "y").labels.tolist() == [2**53 + 1]


@pytest.mark.parametrize(
    ("name", "delimiter", "text"),
    [
        ("t.tsv", None, "a\ty\n1\t2\n"),
        ("t.csv", ";", "a;y\n1;2\n"),
        ("t.csv", None, "\ufeffa,y\r\n\r\n1,2\r\n"),
        ("t.csv", None, '\n\n"a","y"\n"1", 2 \n'),
        ("t.csv", None, "a,y\n1,2"),
        ("t.csv", None, "a,y\r1,2\r"),
    ],
)
def test_spellings_of_a_table(tmp_path: Path, name: str, delimiter: str | None, text: str) -> None:
    data = read_csv(write(tmp_path / name, text), "y", delimiter=delimiter)
    assert data.columns == ("a",)
    assert data.features[MATRIX].tolist() == [[1]]
    assert data.labels.tolist() == [2]


def test_names_of_columns_may_be_numbers(path: Path) -> None:
    assert read_csv(write(path, "0,1,2\n5,6,7\n"), label="2").columns == ("0", "1")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a,b,y\n1,2,0\n3,x,1\n", r"expected a number, got 'x' in column 'b', row 3 \(the header is row 1\)"),
        (
            "a,b,y\n1,2,0\n3,4,cat\n",
            r"got 'cat' in column 'y', row 3 .*labels are numbers \(0, 1, \.\.\. for classes\)",
        ),
        ("a,b,y\n1,2,0\n3,4\n", r"Row #3: Expected 3 columns, got 2: 3,4 \(the header is row 1\)"),
        ("a,b,y\n" + "1,2,0\n" * 500_000 + "1,zz,0\n", "got 'zz' in column 'b', row 500002"),
        ("a,b,y\n", "has a header, but no rows"),
        ("\n\n", "is empty: expected a first row that names the columns"),
        ("", "is empty"),
        ("a,a,y\n1,2,3\n", "column 'a' is there 2 times; the first row must name the columns"),
        ("5.1,3.5,0\n4.9,3.0,1\n", "the first row holds numbers, 5.1, 3.5, 0; the first row must name the columns"),
        (b"a,b,\xff\n1,2,3\n", "the first row cannot be read"),
        (b"a,b,y\n\xff,2,3\n", "expected a number, got .* in column 'a', row 2"),
        ('"a\nb",y\n1,2\n', "table.csv"),
    ],
)
def test_a_bad_table_is_refused_with_file_and_place(path: Path, text: str | bytes, fault: str) -> None:
    with pytest.raises(InputError, match=fault) as caught:
        read_csv(write(path, text), label="y")
    assert str(path) in str(caught.value)


def test_a_bad_cell_in_a_column_left_out_is_nobodys_business(path: Path) -> None:
    assert read_csv(write(path, "id,a\nx,1\n"), features=["a"]).num_records == 1


@pytest.mark.parametrize("delimiter", ["", ",,"])
def test_a_delimiter_is_one_character(path: Path, delimiter: str) -> None:
    with pytest.raises(InputError, match=r"the delimiter is .*: expected one character"):
        read_csv(write(path, TABLE), delimiter=delimiter)
