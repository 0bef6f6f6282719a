"""Parts of an input: their records, whatever the chunks are, and what is learned from them."""

from __future__ import annotations

import itertools
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.part import InputPart
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema
from psflow.ps_runtime.tabular_files import scan


def write(folder: Path, num_rows: int, blank: int | None = None) -> str:
    rows = [f"{'' if row == blank else row},{row % 2}" for row in range(num_rows)]
    (folder / "t.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    return str(folder / "t.csv")


def opened(path: str, schema: InputSchema | None = None, policy: Any = "error", **keys: Any) -> RecordDataset:
    data = Csv(path=path, label="y", **keys)
    found = open_input(partial(open_dataset, data), non_finite=policy, enforcement=Enforcement(schema, "the input"))
    assert isinstance(found, RecordDataset)
    return found


def numbers(data: RecordDataset) -> list[int]:
    features, labels = data.read(0, 0, data.num_records)
    assert isinstance(features, dict)
    x = features["x"].astype(int)
    assert (x % 2 == labels).all()
    return list(x)


def test_parts_that_touch_have_each_record_once_and_their_share_of_all() -> None:
    bounds = [0, 0.1, 0.5, 0.9, 1]
    has = np.array([InputPart(*pair).has(7, 100_000) for pair in itertools.pairwise(bounds)])
    assert (has.sum(axis=0) == 1).all()
    np.testing.assert_allclose(has.mean(axis=1), [0.1, 0.4, 0.4, 0.1], atol=0.005)


def test_a_record_stays_where_it_is_whichever_records_are_asked_for() -> None:
    whole = InputPart(0, 0.7).has(0, 1000)
    assert np.array_equal(InputPart(0, 0.7).has(300, 50), whole[300:350])
    assert whole[:16].astype(int).tolist() == [1, 1, 0, 1, 0, 0, 0, 1, 0, 1, 1, 1, 1, 0, 1, 1], "in every version"


@pytest.mark.parametrize(
    "bounds", [(0.5, 0.5), (0.6, 0.5), (-0.1, 1), (0, 1.1), (float("nan"), 1), (True, 1), ("0", 1)]
)
def test_bounds_that_are_no_part_are_refused(bounds: Any) -> None:
    with pytest.raises(UsageError, match="expected two ascending numbers from 0 to 1"):
        InputPart(*bounds)


@pytest.mark.parametrize(
    ("part", "expected"),
    [([0.9], "two numbers"), ([], "two numbers"), (0.9, "a list of numbers"), ("01", "a list of numbers")],
)
def test_a_part_is_two_numbers(part: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=f"part is {re.escape(repr(part))}, expected {expected}"):
        Csv(path="t.csv", part=part)


def test_two_parts_of_a_file_share_no_record_and_one_learns_from_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, 200)
    whole = numbers(opened(path))
    monkeypatch.setattr(scan, "CHUNK_BYTES", 64)
    train = opened(path, part=[0, 0.8], columns={"x": ColumnOptions(impute="mean")})
    held_out = opened(path, train.schema(), part=[0.8, 1])
    assert sorted(numbers(train) + numbers(held_out)) == whole
    assert 20 < held_out.num_records < 60
    preprocessing = train.schema().preprocessing
    assert preprocessing is not None
    assert preprocessing.num_records == train.num_records
    assert preprocessing.features[0].fill == pytest.approx(np.mean(numbers(train)))  # type: ignore[union-attr]
    assert train.digest() != opened(path, part=[0, 0.7], columns={"x": ColumnOptions(impute="mean")}).digest()


def test_a_missing_value_counts_in_its_part_alone(tmp_path: Path) -> None:
    has = InputPart(0, 0.5).has(0, 100)
    blank = int(np.flatnonzero(~has)[3])
    path = write(tmp_path, 100, blank)
    train = opened(path, part=[0, 0.5])
    assert train.non_finite.num_rows == 0
    with pytest.raises(InputError, match=f"row {blank + 2} "):
        opened(path, train.schema(), part=[0.5, 1])
    dropped = opened(path, train.schema(), policy="drop", part=[0.5, 1])
    assert numbers(dropped) == [row for row in range(100) if not has[row] and row != blank]


def test_a_part_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the input: part \[0.99, 1\] has none of the 3 records"):
        opened(write(tmp_path, 3), part=[0.99, 1])


def test_a_model_that_reads_arrays_takes_whole_files(tmp_path: Path) -> None:
    schema = InputSchema((ArraySpec("x", "float32", ()),))
    with pytest.raises(InputError, match=r"part \[0, 0.5\] is for models that were trained on tabular files"):
        opened(write(tmp_path, 3), schema, part=[0, 0.5])
