"""Cells that are not of the type of their column: found in every chunk, and refused, treated as missing or left out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.formats import FORMATS, open_dataset
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.record_formats import Csv, JsonLinesInput
from psflow.ps_runtime.data.scanned_input import ScannedInput
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema
from psflow.ps_runtime.tabular_files.scan import Scan

ROWS = 60
KINDS = {"csv": "csv", "tsv": "tsv", "jsonl": "jsonl"}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Scan.__init__.__kwdefaults__, "chunk_bytes", 100)


def written(folder: Path, kind: str, table: dict[str, Sequence[Any]], name: str = "t") -> Path:
    path = folder / f"{name}.{kind}"
    rows = list(zip(*table.values(), strict=True))
    if kind == "jsonl":
        path.write_text("".join(json.dumps(dict(zip(table, row, strict=True))) + "\n" for row in rows))
    else:
        mark = "," if kind == "csv" else "\t"
        path.write_text("".join(mark.join(map(str, row)) + "\n" for row in [tuple(table), *rows]))
    return path


def opened(path: Path, kind: str = "csv", non_finite: str = "error", **options: Any) -> RecordDataset:
    batching = {name: options.pop(name) for name in ("shuffle", "seed") if name in options}
    data = open_input(
        lambda: open_dataset(FORMATS[kind](path=str(path), label="y", **options), **batching),
        mode="train",
        non_finite=non_finite,
    )
    assert isinstance(data, RecordDataset)
    return data


def with_total(**columns: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Return sixty records with a word among the numbers in row 31."""
    xs: list[Any] = [row + 0.5 for row in range(ROWS)]
    xs[30] = "Total"
    return {"x": xs, "z": [row % 7 for row in range(ROWS)], "y": [row % 2 for row in range(ROWS)], **columns}


@pytest.mark.parametrize("kind", KINDS)
def test_a_string_among_numbers_is_refused_with_how_many_are_numbers_and_its_row(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, kind, with_total())
    row, word = (31, '"Total"') if kind == "jsonl" else (32, "'Total'")
    with pytest.raises(InputError, match=rf"t.{kind}: column 'x': 59 of 60 are numbers; row {row} \(.*\) is {word}; "):
        opened(path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_drop_leaves_out_the_row_in_any_order_and_part(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, kind, with_total())
    data = opened(path, kind, invalid="drop")
    assert data.num_records == ROWS - 1
    features, labels = data.read(0, 0, ROWS - 1)
    kept = np.delete(np.arange(ROWS), 30)
    assert features["x"].tolist() == (kept + 0.5).tolist()
    assert labels is not None
    assert labels.tolist() == (kept % 2).tolist()
    assert re.match(rf"row {30 + (kind != 'jsonl')} ", data.place(0, 29))
    assert re.match(rf"row {32 + (kind != 'jsonl')} ", data.place(0, 30))
    shuffled = opened(path, kind, invalid="drop", shuffle=True, seed=3)
    assert sorted(shuffled.read(1, 0, ROWS - 1)[0]["x"].tolist()) == (kept + 0.5).tolist()
    parts = [opened(path, kind, invalid="drop", part=part) for part in ([0, 0.5], [0.5, 1])]
    assert (
        sorted(x for part in parts for x in part.read(0, 0, part.num_records)[0]["x"].tolist()) == (kept + 0.5).tolist()
    )
    assert sum(part.invalid.num_rows for part in parts) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_missing_makes_the_cell_a_missing_value(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, kind, with_total())
    with pytest.raises(InputError, match="column 'x' has 1 cell that is missing, NaN or infinite"):
        opened(path, kind, invalid="missing")
    kept = opened(path, kind, invalid="missing", non_finite="keep")
    assert np.isnan(kept.read(0, 0, ROWS)[0]["x"]).nonzero()[0].tolist() == [30]
    filled = opened(path, kind, invalid="missing", columns={"x": ColumnOptions(impute=7)})
    assert filled.read(0, 0, ROWS)[0]["x"][30] == 7
    assert str(filled.invalid) == "1 row has an invalid cell, which becomes a missing value"


@pytest.mark.parametrize("kind", KINDS)
def test_all_columns_and_all_policies_report_together(kind: str, tmp_path: Path) -> None:
    zs: list[Any] = [row % 7 for row in range(ROWS)]
    zs[5], zs[50] = "none", "nothing"
    dirty = with_total(z=zs, w=[None if kind == "jsonl" and row == 8 else row or "" for row in range(ROWS)])
    with pytest.raises(InputError) as caught:
        opened(written(tmp_path, kind, dirty), kind)
    assert [re.search(r"column '(.)'", fault)[1] for fault in caught.value.faults][:2] == ["x", "z"]  # type: ignore[index]
    assert "58 of 60 are whole numbers; row" in caught.value.faults[1]


def test_values_beyond_the_rows_that_types_are_inferred_from_are_no_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psflow.ps_runtime.tabular_files.delimited_file.INFERRED_ROWS", 10)
    path = written(tmp_path, "csv", with_total())
    assert opened(path, invalid="drop").num_records == ROWS - 1
    with pytest.raises(InputError, match="59 of 60 are numbers; row 32 "):
        opened(path)


def test_a_fraction_widens_a_column_whatever_strings_are_in_it(tmp_path: Path) -> None:
    xs = ["Total" if row == 3 else "0.5" if row == 50 else row for row in range(ROWS)]
    data = opened(written(tmp_path, "csv", with_total(x=xs)), invalid="drop")
    assert data.read(0, 48, 50)[0]["x"].tolist() == [49, 0.5]


@pytest.mark.parametrize(
    ("good", "what"), [("2024-03-05", "dates"), ("2024-03-05 10:00:00", "times"), ("true", "true or false")]
)
def test_other_types_have_strings_among_them_too(good: str, what: str, tmp_path: Path) -> None:
    path = written(tmp_path, "csv", with_total(x=[good] * 40 + ["later"] + [good] * 19))
    with pytest.raises(InputError, match=f"column 'x': 59 of 60 are {what}; row 42 .* is 'later'"):
        opened(path, columns={"x": ColumnOptions(type="number")})


@pytest.mark.parametrize("num_words", [7, 30])
def test_more_than_a_tenth_are_strings_of_a_vocabulary(num_words: int, tmp_path: Path) -> None:
    xs = [f"w{row}" if row < num_words else row for row in range(ROWS)]
    assert opened(written(tmp_path, "csv", with_total(x=xs))).schema().features[0].num_ids > ROWS


def test_strings_by_type_are_strings(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", with_total())
    assert opened(path, columns={"x": ColumnOptions(type="string")}).schema().features[0].num_ids == ROWS + 1


def test_a_column_of_stated_numbers_may_be_all_strings_but_one(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", with_total(x=["1.5", *["?"] * (ROWS - 1)]))
    for stated in ("number", "float64"):
        data = opened(path, columns={"x": ColumnOptions(type=stated)}, invalid="drop")
        assert data.read(0, 0, data.num_records)[0]["x"].tolist() == [1.5]
    words = written(tmp_path, "csv", with_total(x=["?"] * ROWS))
    with pytest.raises(InputError, match=r"0 of 60 are numbers; .*(?s:.)*invalid is drop, which leaves no row"):
        opened(words, columns={"x": ColumnOptions(type="float64")}, invalid="drop")


def test_strings_of_parquet_that_are_to_be_numbers_are_judged(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {name: list(map(str, cells)) for name, cells in with_total().items()}
    parquet.write_table(pa.table(columns), path, row_group_size=7)
    with pytest.raises(InputError, match=r"59 of 60 are numbers; row 30 \(the first row is 0\) is 'Total'"):
        opened(path, "parquet", columns={"x": ColumnOptions(type="float64")})
    assert opened(path, "parquet", columns={"x": ColumnOptions(type="number")}, invalid="drop").num_records == ROWS - 1


def test_a_scan_that_is_kept_has_them(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", with_total())
    data = opened(path, invalid="drop")
    again = RecordDataset(ScannedInput.from_bytes(data.scanned.to_bytes(), "kept"), data.batching)
    assert again.invalid == data.invalid
    assert again.digest() == data.digest()
    assert again.read(0, 0, ROWS - 1)[0]["x"].tolist() == data.read(0, 0, ROWS - 1)[0]["x"].tolist()
    asked = [Csv(path=str(path), label="y", invalid=kind).read().asked("error") for kind in ("drop", "missing")]
    assert asked[0] != asked[1]


def test_a_later_input_has_a_policy_of_its_own(tmp_path: Path) -> None:
    clean = written(tmp_path, "csv", with_total(x=range(ROWS)))
    dirty = written(tmp_path, "csv", with_total(), "later")
    schema = opened(clean).schema()
    with pytest.raises(
        InputError, match=r"later.csv: column 'x': 59 of 60 are numbers; row 32 .* is 'Total'"
    ) as caught:
        Csv(path=str(dirty)).read().open(schema, "error", "input.eval", needs_labels=True)
    assert "set invalid of input.eval to drop" in str(caught.value)
    assert "features" not in str(caught.value)
    data = Csv(path=str(dirty), invalid="drop").read().open(schema, "error", "input.eval", needs_labels=True)
    assert data.num_records == ROWS - 1


def test_a_column_that_need_not_be_read_may_be_left_out_of_features(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"; or leave 'x' out of features: \[\.\.\.\]"):
        opened(written(tmp_path, "csv", with_total()))
    labels = [*(row % 2 for row in range(ROWS - 1)), "oops"]
    with pytest.raises(InputError) as caught:
        opened(written(tmp_path, "csv", with_total(x=range(ROWS), y=labels), "label"))
    assert "features" not in str(caught.value)


def test_texts_count_the_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", with_total())
    assert str(opened(path, invalid="drop").invalid) == "1 row with an invalid cell is left out"
    xs = ["Total" if row in (30, 40) else row for row in range(ROWS)]
    path = written(tmp_path, "csv", with_total(x=xs))
    assert str(opened(path, invalid="drop").invalid) == "2 rows with an invalid cell are left out"
    filled = opened(path, invalid="missing", non_finite="keep").invalid
    assert str(filled) == "2 rows have an invalid cell, which becomes a missing value"


def test_an_unknown_policy_is_refused_with_a_near_one(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="invalid is 'droop': expected one of error, missing, drop; did you mean 'drop'"
    ):
        Csv(path=str(tmp_path), invalid="droop")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "is_header"),
    [
        ("age,score,y", True),
        (" Age , SCORE,Y", True),
        ("oops,oops,oops", False),
        ("unknown,unknown,y", False),
        ("age,score,unknown", False),
        (f"age,{'score' + 40 * ' '}x,y", False),
    ],
)
def test_a_row_is_a_header_only_if_its_cells_are_the_names(tmp_path: Path, row: str, is_header: bool) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{i},{i}.5,{i % 2}" for i in range(40)]
    path.write_text("\n".join(["age,score,y", *rows, row, *rows]) + "\n")
    with pytest.raises(InputError) as caught:
        opened(path)
    says_so = ["the name of the column" in fault for fault in caught.value.faults]
    assert says_so == [is_header] * 3
    assert opened(path, invalid="drop").num_records == 80


def test_a_string_of_a_column_beside_invalid_numbers_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,town,y\n" + "1,bern,0\n2,town,1\n" * 20 + "unknown,town,unknown\n" + "1,bern,0\n" * 20)
    assert [column.name for column in opened(path, invalid="missing", non_finite="drop").invalid.columns] == [
        "age",
        "y",
    ]


@pytest.mark.parametrize("policy", ["drop", "missing"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_column_does_not_widen_beside_a_whole_number_that_is_too_long(
    tmp_path: Path, kind: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("delimited_file", "json_lines"):
        monkeypatch.setattr(f"psflow.ps_runtime.tabular_files.{module}.INFERRED_ROWS", 20)
    xs: list[Any] = list(range(ROWS))
    xs[30], xs[50] = 99999999999999999999, 1.5
    table = {"x": xs, "y": [row % 2 for row in range(ROWS)]}
    with pytest.raises(
        InputError, match=r"got '?1.5'?; .* beside '?9{20}'? in row 3[12] of .* would make the integer lose"
    ):
        opened(written(tmp_path, kind, table), kind, invalid=policy)


@pytest.mark.parametrize("number", ["0x1F", "0X1f"])
@pytest.mark.parametrize("last", ["1", "1.5"])
def test_hexadecimal_numbers_are_invalid_whether_a_column_widens_or_not(
    tmp_path: Path, number: str, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psflow.ps_runtime.tabular_files.delimited_file.INFERRED_ROWS", 20)
    xs: list[Any] = list(range(ROWS))
    xs[30], xs[50] = number, last
    data = opened(written(tmp_path, "csv", {"x": xs, "y": [row % 2 for row in range(ROWS)]}), invalid="drop")
    features, _ = data.read(0, 0, ROWS - 1)
    assert features["x"].tolist() == [*range(30), *range(31, 50), float(last), *range(51, ROWS)]


def test_an_invalid_key_that_is_not_read_leaves_no_row_out(tmp_path: Path) -> None:
    table = {"id": list(range(ROWS)), "x": [row + 0.5 for row in range(ROWS)], "y": [row % 2 for row in range(ROWS)]}
    schema = opened(written(tmp_path, "jsonl", table), "jsonl", key_columns=["id"]).schema()
    later = written(tmp_path, "jsonl", {**table, "id": [*range(30), "x3", *range(31, ROWS)]}, "later")
    for policy in ("error", "drop", "missing"):
        given = JsonLinesInput(path=str(later), label="y", key_columns=["id"], invalid=policy)  # type: ignore[arg-type]
        data = given.read().open(schema, "error", "the input", needs_labels=False)
        assert data.read(0, 0, ROWS)[0]["x"].tolist() == table["x"]


def test_a_header_that_is_repeated_is_invalid_in_every_column(tmp_path: Path) -> None:
    words = {"job": ["clerk", "smith"] * 20, "town": ["town", "bern"] * 20, "y": ["no", "yes"] * 20}
    text = written(tmp_path, "csv", words).read_text()
    path = tmp_path / "all.csv"
    path.write_text(text * 3)
    with pytest.raises(InputError) as caught:
        opened(path)
    assert len(caught.value.faults) == 3
    assert "column 'y': 120 of 122 are strings; row 42 " in caught.value.faults[2]
    assert "is 'y', the name of the column; correct the data; or set invalid" in caught.value.faults[2]
    assert "type: string" not in caught.value.faults[2]
    data = opened(path, invalid="drop")
    assert (data.num_records, data.distinct_labels().tolist()) == (120, [0, 1])  # type: ignore[union-attr]
    assert [feature.num_ids for feature in data.schema().features] == [3, 3]
    assert opened(written(tmp_path, "csv", words, "one"), features=["town"]).num_records == 40


@pytest.mark.parametrize("invalid", ["error", "missing", "drop"])
def test_a_prediction_has_a_row_for_each_record_or_is_refused(invalid: Any, tmp_path: Path) -> None:
    path = written(tmp_path, "csv", with_total())
    schema = opened(path, invalid="drop", columns={"x": ColumnOptions(impute="mean")}).schema()
    given = Csv(path=str(path), invalid=invalid).read()
    if invalid == "missing":
        assert given.open(schema, "keep", "the predict input", needs_labels=False).num_records == ROWS
        return
    with pytest.raises(
        InputError, match=r"row 32 .* is 'Total'; .*set invalid of the predict input to missing"
    ) as caught:
        given.open(schema, "keep", "the predict input", needs_labels=False)
    assert ("is drop, but a prediction has a row for each record" in str(caught.value)) == (invalid == "drop")


@pytest.mark.parametrize("needs_labels", [True, False])
def test_a_model_that_was_trained_on_arrays_is_not_given_invalid_cells_as_missing_values(
    needs_labels: bool, tmp_path: Path
) -> None:
    path = written(tmp_path, "csv", with_total())
    features = tuple(ArraySpec(name, "float32", ()) for name in "xz")
    enforcement = Enforcement(InputSchema(features, (ArraySpec("", "int64", ()),)), "input.eval", needs_labels)

    def given(invalid: Any, non_finite: Any) -> Any:
        data = Csv(path=str(path), label="y", invalid=invalid).read()
        return open_input(lambda: data, enforcement=enforcement, non_finite=non_finite)

    with pytest.raises(InputError, match=r"column 'x': 59 of 60 are numbers; row 32 .* is 'Total'") as caught:
        given("error", "keep")
    assert str(caught.value).endswith(
        "; or set invalid of input.eval to missing, which treats such cells as missing values"
    )
    with pytest.raises(InputError, match=r"input\.eval is drop, .*; set it to missing, and non_finite to drop"):
        given("drop", "drop")
    with pytest.raises(InputError, match=r"features\['x'\] has 1 cell that is missing.* in row 32"):
        given("missing", "error")
    assert given("missing", "drop").num_records == ROWS - 1
