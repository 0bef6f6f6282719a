"""Parquet and Arrow files: columns that have types, and damage."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.arrow_file import ArrowFile
from psflow.ps_runtime.tabular_files.base import RecordFormat
from psflow.ps_runtime.tabular_files.parquet import Parquet
from psflow.ps_runtime.tabular_files.reader import RecordReader
from tests.ps_runtime.tabular_files.reading import index_of, read_all, table_of, types_of


def write_parquet(table: pa.Table, path: Path) -> Path:
    pq.write_table(table, path.with_suffix(".parquet"), row_group_size=2)
    return path.with_suffix(".parquet")


def write_arrow(table: pa.Table, path: Path) -> Path:
    with pa.ipc.new_file(path.with_suffix(".arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path.with_suffix(".arrow")


Write = Callable[[pa.Table, Path], Path]


@pytest.fixture(params=[(write_parquet, Parquet), (write_arrow, ArrowFile)], ids=["parquet", "arrow"])
def form(request: pytest.FixtureRequest) -> tuple[Write, type[RecordFormat]]:
    return request.param  # type: ignore[no-any-return]


DAY = datetime.datetime(2024, 1, 1, 12)
COLUMNS = {
    "int8": (pa.array([1, -2, None], pa.int8()), "int64", [1, -2, None]),
    "uint64": (pa.array([1, 2**63 - 1, None], pa.uint64()), "int64", [1, 2**63 - 1, None]),
    "half": (pa.array([1.5, float("inf"), None], pa.float16()), "float32", [1.5, float("inf"), None]),
    "float": (pa.array([1.5, -0.0, None], pa.float32()), "float32", [1.5, -0.0, None]),
    "decimal": (pa.array([decimal.Decimal("1.50"), None, None]), "float64", [1.5, None, None]),
    "bool": (pa.array([True, None, False]), "bool", [True, None, False]),
    "large": (pa.array(["a", None, " é "], pa.large_string()), "string", ["a", None, " é "]),
    "words": (pa.array(["a", None, "a"]).dictionary_encode(), "string", ["a", None, "a"]),
    "date": (pa.array([DAY.date(), None, None]), "date", [DAY.date(), None, None]),
    "seconds": (pa.array([DAY, None, None], pa.timestamp("s")), "timestamp", [DAY, None, None]),
    "nanos": (pa.array([1999, -1, None], pa.timestamp("ns")), "timestamp", [
        datetime.datetime(1970, 1, 1, microsecond=1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), None]),
    "zoned": (pa.array([DAY, None, None], pa.timestamp("us", "Europe/Berlin")), "timestamp", [DAY, None, None]),
    "null": (pa.nulls(3), "float64", [None] * 3),
    "vector": (pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2)), "int64[2]", [[1, 2], [3, 4], [5, 6]]),
}  # fmt: skip


def test_stored_types_become_raw_types(form: tuple[Write, type[RecordFormat]], tmp_path: Path) -> None:
    write, record_format = form
    path = write(pa.table({name: stored for name, (stored, _, _) in COLUMNS.items()}), tmp_path / "t")
    index = index_of(path, record_format())
    assert types_of(index) == {name: kind for name, (_, kind, _) in COLUMNS.items()}
    assert index.num_chunks == 2
    assert read_all(index).to_pydict() == {name: values for name, (_, _, values) in COLUMNS.items()}


def test_other_types_are_no_fault_until_someone_asks(form: tuple[Write, type[RecordFormat]], tmp_path: Path) -> None:
    write, record_format = form
    others = {
        "s": pa.array([{"x": 1}] * 3),
        "l": pa.array([[True], [True, False], None]),
        "b": pa.array([b"x"] * 3),
        "t": pa.array([1] * 3, pa.time64("us")),
    }
    path = write(pa.table({"a": [1, 2, 3], **others}), tmp_path / "t")
    index = index_of(path, record_format())
    assert types_of(index) == {"a": "int64"}
    assert set(index.unreadable) == set(others)
    for name in others:
        with pytest.raises(InputError, match=f"column '{name}' is .*: expected numbers, strings, .*; leave it out"):
            index_of(path, record_format(), ["a", name])
        with pytest.raises(InputError, match=f"column '{name}' is .*: expected numbers, strings, .*; leave it out"):
            RecordReader(index, [name])


def test_lists_of_any_length_are_read_as_they_are(form: tuple[Write, type[RecordFormat]], tmp_path: Path) -> None:
    write, record_format = form
    lists = {
        "words": pa.array([["a", None], [], None]),
        "ids": pa.array([[1], [2, 3], []], pa.list_(pa.int16())),
        "large": pa.array([[1.5], [], None], pa.large_list(pa.float64())),
    }
    index = index_of(write(pa.table(lists), tmp_path / "t"), record_format())
    assert types_of(index) == {"words": "string[]", "ids": "int64[]", "large": "float64[]"}
    reader = RecordReader(index)
    table = pa.concat_tables([reader.read_chunk(number) for number in range(index.num_chunks)])
    assert table.to_pydict() == {name: column.to_pylist() for name, column in lists.items()}
    assert table.schema.field("ids").type.value_type == pa.int64()


@pytest.mark.parametrize(
    ("stored", "raw", "values"),
    [
        (pa.array([1, None]), "string", ["1", None]),
        (pa.array([1, None]), "number", [1.0, None]),
        (pa.array([1.0, None]), "int64", [1, None]),  # as pandas has integers some of which are missing
        (pa.array([" 1 ", None]), "int64", [1, None]),
        (pa.array(["2024-01-01"]), "timestamp", [datetime.datetime(2024, 1, 1)]),
        (pa.array([[1, 2]]), "float32[2]", [[1.0, 2.0]]),
        (pa.array([[1.0, 2.5]]), "float32[2]", [[1.0, 2.5]]),
        (pa.array([True]), "number", [1.0]),
        (pa.nulls(1), "string", [None]),
    ],
)
def test_types_can_be_set(
    form: tuple[Write, type[RecordFormat]], tmp_path: Path, stored: pa.Array, raw: str, values: list[Any]
) -> None:
    write, record_format = form
    path = write(pa.table({"a": stored}), tmp_path / "t")
    assert table_of(path, record_format(types={"a": raw}))["a"].to_pylist() == values


@pytest.mark.parametrize(
    ("stored", "raw", "fault"),
    [
        (
            pa.array([1, 2, 2**63], pa.uint64()),
            None,
            "row 2 .*: column 'a' expects a whole number .*, got 9223372036854775808",
        ),
        (pa.array([1.0, 2.0, 2.5]), "int64", "row 2 .*: column 'a' expects a whole number .*, got 2.5"),
        (pa.array([1, 2, 2**53 + 1]), "number", "row 2 .*: column 'a' expects a number, got 9007199254740993"),
        (pa.array(["1", "2", "x"]), "int64", "row 2 .*: column 'a' expects a whole number .*, got 'x'"),
        (
            pa.array([[1], [2], [3, 4]]),
            "float32[1]",
            r"row 2 .*: column 'a' expects float32\[1\], got \[3, 4\]; correct",
        ),
        (pa.array([{"x": 1}] * 3), "string", "column 'a' is struct<x: int64>, which cannot be read as string"),
    ],
)
def test_a_value_that_does_not_fit_is_named(
    form: tuple[Write, type[RecordFormat]], tmp_path: Path, stored: pa.Array, raw: str | None, fault: str
) -> None:
    write, record_format = form
    path = write(pa.table({"a": stored}), tmp_path / "t")
    with pytest.raises(InputError, match=fault):
        table_of(path, record_format(types={} if raw is None else {"a": raw}))


def one_of(kind: pa.DataType) -> pa.Array:
    """Return a missing value; for arrays a present one, because pyarrow does not read missing arrays from Parquet."""
    return pa.array([[1] * kind.list_size], kind) if pa.types.is_fixed_size_list(kind) else pa.nulls(1, kind)


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.int64(), pa.int8(), "int64"),
        (pa.int64(), pa.float64(), "float64"),
        (pa.float64(), pa.int32(), "float64"),
        (pa.float32(), pa.float64(), "float64"),
        (pa.int64(), pa.float32(), "float64"),
        (pa.float32(), pa.int64(), "float32"),
        (pa.string(), pa.null(), "string"),
        (pa.timestamp("s"), pa.timestamp("ns"), "timestamp"),
        (pa.list_(pa.int64(), 2), pa.list_(pa.float32(), 2), "float64[2]"),
    ],
)
def test_types_that_differ_between_files_meet_if_nothing_is_lost(
    form: tuple[Write, type[RecordFormat]], tmp_path: Path, first: pa.DataType, second: pa.DataType, kind: str
) -> None:
    write, record_format = form
    write(pa.table({"a": one_of(first)}), tmp_path / "0")
    write(pa.table({"b": [0], "a": one_of(second)}), tmp_path / "1")
    index = index_of(tmp_path, record_format())
    assert types_of(index) == {"a": kind}
    assert read_all(index)["a"].to_pylist() == one_of(first).to_pylist() + one_of(second).to_pylist()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.int64(), pa.string()),
        (pa.string(), pa.int64()),
        (pa.null(), pa.string()),
        (pa.date32(), pa.timestamp("us")),
        (pa.bool_(), pa.int64()),
        (pa.list_(pa.int64(), 2), pa.list_(pa.int64(), 3)),
        (pa.int64(), pa.list_(pa.int64(), 1)),
    ],
)
def test_other_types_that_differ_between_files_are_refused(
    form: tuple[Write, type[RecordFormat]], tmp_path: Path, first: pa.DataType, second: pa.DataType
) -> None:
    write, record_format = form
    write(pa.table({"a": one_of(first)}), tmp_path / "0")
    write(pa.table({"a": one_of(second)}), tmp_path / "1")
    with pytest.raises(InputError, match=r"^/.*/1\.\w+: column 'a' is .* in this file, expected .* as in the first"):
        table_of(tmp_path, record_format())


def test_damage_is_an_error(form: tuple[Write, type[RecordFormat]], tmp_path: Path) -> None:
    write, record_format = form
    path = write(pa.table({"a": list(range(100)), "s": ["x" * 10] * 100}), tmp_path / "t")
    content = path.read_bytes()
    for damaged in (content[:-5], content[: len(content) // 2], content[:-3] + b"abc", b"a,b\n1,2\n", content[:4]):
        path.write_bytes(damaged)
        with pytest.raises(
            InputError, match=r"^/.*/t\.\w+: the file cannot be read as .*; it may be damaged, truncated, or"
        ):
            table_of(path, record_format())


def test_strings_that_are_no_text_are_damage(form: tuple[Write, type[RecordFormat]], tmp_path: Path) -> None:
    write, record_format = form
    no_text = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    path = write(pa.table({"s": no_text}), tmp_path / "t")
    with pytest.raises(InputError, match=r"the file cannot be read as .* \(.*UTF8.*\); it may be damaged"):
        table_of(path, record_format())


def test_two_columns_of_one_name_are_refused(form: tuple[Write, type[RecordFormat]], tmp_path: Path) -> None:
    write, record_format = form
    path = write(pa.table([[1], [2]], ["a", "a"]), tmp_path / "t")
    with pytest.raises(InputError, match="column 'a' occurs 2 times; rename"):
        table_of(path, record_format())


def test_a_file_without_rows_has_no_records(form: tuple[Write, type[RecordFormat]], tmp_path: Path) -> None:
    write, record_format = form
    path = write(pa.table({"a": pa.array([], pa.string())}), tmp_path / "0")
    with pytest.raises(InputError, match="expected records, found none"):
        table_of(path, record_format())
    write(pa.table({"a": ["x"]}), tmp_path / "1")
    assert table_of(tmp_path, record_format()).to_pydict() == {"a": ["x"]}


def test_other_forms_of_arrow_say_what_they_are(tmp_path: Path) -> None:
    with pa.ipc.new_stream(tmp_path / "t.arrow", pa.schema([("a", pa.int64())])) as writer:
        writer.write_table(pa.table({"a": [1]}))
    with pytest.raises(InputError, match="the file has Arrow's stream format: expected a file as pyarrow"):
        table_of(tmp_path / "t.arrow", ArrowFile())
    (tmp_path / "t.arrow").write_bytes(b"FEA1....")
    with pytest.raises(InputError, match="the file is Feather version 1: expected version 2"):
        table_of(tmp_path / "t.arrow", ArrowFile())


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Parquet file whose first row group is read in slices, its second one as a whole."""
    monkeypatch.setattr("psflow.ps_runtime.tabular_files.parquet.MAX_ROW_GROUP_BYTES", 4000)
    monkeypatch.setattr("psflow.ps_runtime.tabular_files.parquet.SLICE_BYTES", 1000)
    schema = pa.schema([("a", pa.int64()), ("s", pa.string())])
    with pq.ParquetWriter(tmp_path / "t.parquet", schema) as writer:
        for start, stop in ((0, 1030), (1030, 1090)):
            numbers = range(start, stop)
            writer.write_table(pa.table({"a": list(numbers), "s": [f"s{i}" for i in numbers]}, schema))
    return tmp_path / "t.parquet"


def test_large_row_groups_are_read_in_slices_and_in_any_order(large: Path) -> None:
    index = index_of(large, Parquet(), ["a"])
    sizes = [index.first_records[i + 1] - index.first_records[i] for i in range(index.num_chunks)]
    assert sizes[-1] == 60
    assert len(sizes) > 11
    assert max(sizes[:-1]) == min(sizes[:-2])
    with RecordReader(index) as reader:
        for chunk in (11, 9, len(sizes) - 1, 3, 4, 5, 0, len(sizes) - 2, 8, 9):
            start, stop = index.first_records[chunk : chunk + 2].tolist()
            assert reader.read_chunk(chunk)["a"].to_pylist() == list(range(start, stop))
        assert reader.read(120, 1080)["a"].to_pylist() == list(range(120, 1080))
    assert index.place(1035) == (str(large), 1035)


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_slices_are_put_together_of_batches_of_any_size(
    large: Path, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    iter_batches = pq.ParquetFile.iter_batches

    def other(self: pq.ParquetFile, asked: int, row_groups: list[int], **options: Any) -> Any:
        return iter_batches(self, batch_size, row_groups, **options)

    index = index_of(large, Parquet())
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", other)
    assert read_all(index)["a"].to_pylist() == list(range(1090))


def test_slices_that_follow_are_decoded_once(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(large, Parquet())
    opened: list[int] = []
    iter_batches = pq.ParquetFile.iter_batches

    def counted(self: pq.ParquetFile, batch_size: int, row_groups: list[int], **options: Any) -> Any:
        opened.extend(row_groups)
        return iter_batches(self, batch_size, row_groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    read_all(index)
    assert opened == [0, 1]
