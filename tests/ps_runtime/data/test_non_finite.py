"""Missing, NaN and infinite cells: found everywhere, and refused, left out or kept as requested."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.data import non_finite
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.non_finite import NonFiniteColumn, non_finite_cells
from psflow.ps_runtime.data.npz_arrays import Npz
from psflow.ps_runtime.data.record_formats import Csv, Tsv
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.specs.schema import MATRIX

X = np.array([[1, 2], [3, np.nan], [5, 6], [np.inf, np.nan]], np.float32)
Y = np.array([0, 1, 1, 0])


def test_every_cell_is_counted_with_the_first_row_of_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    features = {"x": np.ones((1000, 3), np.float32), "image": np.ones((1000, 2, 2)), "id": np.arange(1000)}
    labels = np.ones(1000, np.float64)
    for row, column in ((17, 1), (18, 1), (999, 1), (500, 2)):
        features["x"][row, column] = np.nan
    features["image"][500, 1, 1] = -np.inf
    features["image"][500, 0, 1] = np.inf
    labels[3] = np.nan
    for chunk_bytes in (1, 100, 2**20):
        monkeypatch.setattr(non_finite, "CHUNK_BYTES", chunk_bytes)
        cells, has_one = non_finite_cells(features, labels, {"features['x']": ("a", "b", "c")})
        assert cells.columns == (
            NonFiniteColumn("column 'b'", 3, 17, 17),
            NonFiniteColumn("column 'c'", 1, 500, 500),
            NonFiniteColumn("features['image']", 2, 500, 500),
            NonFiniteColumn("labels", 1, 3, 3),
        )
        assert cells.num_rows == 5
        assert np.flatnonzero(has_one).tolist() == [3, 17, 18, 500, 999]
    assert cells.first == "labels, row 3 (the first row is 0)"


def test_columns_beyond_ten_are_summed_up() -> None:
    cells, _ = non_finite_cells({"x": np.full((2, 12), np.nan)}, None, {"features['x']": tuple("abcdefghijkl")})
    lines = list(cells.lines())
    assert len(lines) == 11
    assert lines[-1] == "2 more columns have such cells"


def table(directory: Path, kind: type[Csv], delimiter: str) -> Any:
    path = directory / "t"
    rows = [("a", "b", "y"), ("1", "2", "0"), ("3", "", "1"), ("5", "6", "1"), ("inf", "nan", "0")]
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    return partial(open_dataset, kind(path=str(path), label="y", groups={"features": "numeric"}), batch_size=2)


def archive(directory: Path) -> Any:
    np.savez(directory / "t.npz", x=X, labels=Y)
    return partial(open_dataset, Npz(path=str(directory / "t.npz")), batch_size=2)


def whole(directory: Path) -> Any:
    return lambda: (X, Y)


def stream(directory: Path) -> Any:
    return lambda: iter([(X[:2], Y[:2]), (X[3:], Y[3:]), (X[2:3], Y[2:3])])


SOURCES = [
    (
        partial(table, kind=Csv, delimiter=","),
        r"/t: column 'b' has 2 cells that are .* in row 3 \(the header is row 1",
    ),
    (
        partial(table, kind=Tsv, delimiter="\t"),
        r"/t: column 'b' has 2 cells that are .* in row 3 \(the header is row 1",
    ),
    (
        archive,
        r"/t\.npz: features\['x'\] has 3 cells that are missing, NaN or infinite, the first in row 1 \(the first",
    ),
    (whole, r"input_fn whole\.<locals>\.<lambda>: features has 3 cells that are .*, the first in row 1"),
    (stream, r"batch 0 of input_fn stream.*: features has 1 cell that is missing, NaN or infinite, the first in row 1"),
]


def rows_of(opened: SplittableInput | Iterator[Any]) -> tuple[Any, Any]:
    batches = [opened.read(0, 0, opened.num_records)] if isinstance(opened, SplittableInput) else list(opened)
    matrices = [next(iter(f.values())) if isinstance(f, dict) else f for f, _ in batches]
    return np.concatenate(matrices), np.concatenate([labels for _, labels in batches])


@pytest.mark.parametrize(("make", "words"), SOURCES)
class TestLaws:
    """What every source of examples does."""

    def test_an_error_names_source_column_and_row(
        self, make: Callable[[Path], Any], words: str, tmp_path: Path
    ) -> None:
        with pytest.raises(InputError, match=f"{words}.*(\n.*)?correct the data, or set non_finite of this input"):
            rows_of(open_input(make(tmp_path), non_finite="error"))

    def test_dropped_rows_are_gone(self, make: Callable[[Path], Any], words: str, tmp_path: Path) -> None:
        for _ in range(2):  # the same each time: records keep their numbers over a resume
            opened = open_input(make(tmp_path), non_finite="drop")
            features, labels = rows_of(opened)
            assert features.tolist() == [[1, 2], [5, 6]]
            assert labels.tolist() == [0, 1]
        if isinstance(opened, SplittableInput):
            assert (opened.num_records, opened.non_finite.num_rows, opened.non_finite.is_dropped) == (2, 2, True)

    def test_kept_rows_are_there(self, make: Callable[[Path], Any], words: str, tmp_path: Path) -> None:
        opened = open_input(make(tmp_path), non_finite="keep")
        features, _ = rows_of(opened)
        assert len(features) == 4
        assert np.isfinite(features).sum() == 5
        if isinstance(opened, SplittableInput):
            assert str(opened.non_finite) == "2 rows that have a missing, NaN or infinite cell kept"


def test_a_missing_label_is_a_cell_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"a,y\n1,{2**24 + 1}\n2,\n")
    read = partial(open_dataset, Csv(path=str(path), label="y"))
    with pytest.raises(InputError, match=r"t\.csv: column 'y' has 1 cell that is .*, the first in row 3 \(the header"):
        open_input(read, non_finite="error")
    dropped = open_input(read, non_finite="drop")
    assert isinstance(dropped, SplittableInput)
    _, labels = dropped.read(0, 0, 1)
    assert isinstance(labels, np.ndarray)
    assert (labels.tolist(), labels.dtype) == ([2**24 + 1], np.int64)


NAN = np.array([np.nan, 1.0, np.nan])
READ = {"a": np.array([1.0, 2.0, 3.0])}
UNREAD = READ | {"b": NAN}


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_batches_over_the_ends_of_passes_lose_no_row_to_those_that_are_left_out(drop_remainder: bool) -> None:
    x = np.where(np.arange(8) == 4, np.nan, 1.0)
    opened = open_input(
        lambda: Dataset({"x": x}, np.arange(8)).repeat().batch(4, drop_remainder=drop_remainder), non_finite="drop"
    )
    assert isinstance(opened, Dataset)
    kept = [0, 1, 2, 3, 5, 6, 7]
    assert opened.read(0, 0, opened.num_records)[1].tolist() == 4 * kept
    assert [len(batch) for batch in itertools.islice(opened.map(lambda features, labels: labels), 9)] == [4] * 9


@pytest.mark.parametrize("policy", ["error", "drop"])
@pytest.mark.parametrize(
    "input_fn",
    [
        lambda: (UNREAD, Y[:3]),
        lambda: iter([(UNREAD, Y[:3])]),
        lambda: Dataset({MATRIX: np.stack([NAN, READ["a"]], axis=1)}, Y[:3], columns=("b", "a")).batch(3),
    ],
)
def test_cells_that_the_model_does_not_read_do_not_count(input_fn: Any, policy: Any) -> None:
    unused: list[str] = []
    enforcement = Enforcement(Dataset(READ, Y[:3]).schema(), on_unused=lambda names: unused.extend(names))
    features, _ = rows_of(open_input(input_fn, mode="eval", non_finite=policy, enforcement=enforcement))
    assert features.tolist() == [1, 2, 3]
    assert unused == ["b"]


def test_an_input_of_which_nothing_is_left_is_refused() -> None:
    with pytest.raises(InputError, match=r"labels has 2 cells .*\n.*non_finite is drop, which leaves no row"):
        open_input(lambda: (X[:2], [np.nan, np.inf]), non_finite="drop")


def test_a_data_set_of_finite_numbers_is_the_same_one() -> None:
    data = Dataset({"x": X[:1], "word": np.array(["a"])}, Y[:1])
    assert open_input(lambda: data, non_finite="error") is data


def test_what_a_stream_leaves_out_is_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.WARNING):
        list(open_input(stream(tmp_path), non_finite="drop"))
    first, total = caplog.messages
    assert first.startswith("leaving out rows with a missing, NaN or infinite cell, such as features, row 1 of batch 0")
    assert total.endswith("left out 2 rows with a missing, NaN or infinite cell")


@pytest.mark.parametrize("kind", [TrainSpec, EvalSpec])
def test_an_unknown_policy_is_refused_with_the_near_name(kind: Any) -> None:
    with pytest.raises(
        UsageError, match=r"Spec\.non_finite is 'dorp': expected one of error, drop, keep; did you mean 'dr"
    ):
        kind(lambda: None, non_finite="dorp")
