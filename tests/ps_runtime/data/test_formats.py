import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather
from pyarrow import parquet as pq

from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.digits import Digits
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.formats import FORMATS, open_dataset
from psflow.ps_runtime.data.idx_images import Idx
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.npz_arrays import Npz
from psflow.ps_runtime.data.record_formats import ArrowInput, Csv, JsonLinesInput, LibSvm, ParquetInput, Tsv
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import InputSchema


def digits(folder: Path) -> Format:
    return Digits(split="test")


def csv(folder: Path) -> Format:
    (folder / "t.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    return Csv(path=str(folder / "t.csv"), label="y")


def tsv(folder: Path) -> Format:
    (folder / "t.txt").write_text("a\tb\ty\n1\t2\t0\n3\t4\t1\n")
    return Tsv(path=str(folder / "t.txt"), label="y", features=["b"])


TABLE = pa.table({"a": [1.5, 3.5], "word": ["x", "y"], "y": [0, 1]})


def parquet(folder: Path) -> Format:
    pq.write_table(TABLE, folder / "t.parquet")
    return ParquetInput(path=str(folder / "t.parquet"), label="y")


def arrow(folder: Path) -> Format:
    feather.write_feather(TABLE, folder / "t.feather")
    return ArrowInput(path=str(folder / "t.feather"), label="y", groups={"numbers": "numeric"})


def json_lines(folder: Path) -> Format:
    (folder / "t.jsonl").write_text('{"a": 1, "y": 0}\n{"y": 1, "a": 2}\n')
    return JsonLinesInput(path=str(folder / "t.jsonl"), label="y")


def libsvm(folder: Path) -> Format:
    (folder / "t.svm").write_text("-1 1:0.5\n+1 3:2 # a comment\n")
    return LibSvm(path=str(folder / "t.svm"))


def npz(folder: Path) -> Format:
    np.savez(folder / "t.npz", x=[[1.0], [2.0]], labels=[0, 1])
    return Npz(path=str(folder / "t.npz"))


def idx(folder: Path) -> Format:
    (folder / "images").write_bytes(b"\0\0\x08\3" + b"\0\0\0\2" * 3 + bytes(range(8)))
    (folder / "labels").write_bytes(b"\0\0\x08\1" + b"\0\0\0\2" + bytes([1, 0]))
    return Idx(path=folder / "images", labels_path=str(folder / "labels"))


def opened(data: Format, enforcement: Enforcement | None = None, **batching: Any) -> SplittableInput:
    given = partial(open_dataset, data, **batching)
    found = open_input(given) if enforcement is None else open_input(given, enforcement=enforcement)
    assert isinstance(found, SplittableInput)
    return found


def whole(data: SplittableInput) -> tuple[dict[str, np.ndarray], np.ndarray]:
    features, labels = data.read(0, 0, data.num_records)
    assert isinstance(features, dict)
    assert isinstance(labels, np.ndarray)
    return features, labels


MAKERS: list[Callable[[Path], Format]] = [digits, csv, tsv, parquet, arrow, json_lines, libsvm, npz, idx]


def test_the_laws_run_for_every_format(tmp_path: Path) -> None:
    assert {type(make(tmp_path)) for make in MAKERS} == set(FORMATS.values())


@pytest.mark.parametrize("make", MAKERS)
class TestLaws:
    def test_one_batch_in_file_order_with_a_label_for_each_row(self, make: Any, tmp_path: Path) -> None:
        data = opened(make(tmp_path))
        assert (data.batch_size, data.num_epochs, data.shuffle_seed) == (data.num_records, 1, None)
        features, labels = whole(data)
        assert {len(array) for array in features.values()} == {len(labels)} == {data.num_records}

    def test_reading_again_gives_the_same(self, make: Any, tmp_path: Path) -> None:
        data = make(tmp_path)
        first, second = opened(data), opened(data)
        assert first.digest() == second.digest()
        assert first.schema() == second.schema()
        np.testing.assert_equal(whole(first), whole(second))

    def test_it_is_given_in_batches_and_orders(self, make: Any, tmp_path: Path) -> None:
        data = opened(make(tmp_path), batch_size=2, epochs=None, shuffle=True, seed=7)
        assert (data.batch_size, data.num_epochs, data.shuffle_seed) == (2, None, 7)

    def test_a_trained_model_reads_what_it_was_trained_on(self, make: Any, tmp_path: Path) -> None:
        data = make(tmp_path)
        trained = opened(data)
        again = opened(data, Enforcement(trained.schema()))
        assert again.schema() == trained.schema()
        np.testing.assert_equal(whole(again), whole(trained))

    def test_what_it_reads_survives_as_plain_data(self, make: Any, tmp_path: Path) -> None:
        schema = opened(make(tmp_path)).schema()
        assert InputSchema.from_facts(json.loads(json.dumps(schema.to_facts()))) == schema


@dataclass(frozen=True, kw_only=True)
class Own(Format):
    suffixes: ClassVar[tuple[str, ...]] = ()
    path: str

    def read(self) -> Dataset:
        return Dataset({"x": [1.0, np.nan]}, [0, 1], batch_size=2)

    @classmethod
    def for_prediction(cls, location: str, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        return cls(path=location)


def test_cells_of_a_format_of_the_user_are_reported_with_its_file() -> None:
    read = partial(open_dataset, Own(path="/data/own.bin"))
    with pytest.raises(InputError, match=r"^/data/own\.bin: features\['x'\] has 1 cell that is .* the first in row 1 "):
        open_input(read, non_finite="error")


def test_a_seed_alone_does_not_shuffle(tmp_path: Path) -> None:
    assert opened(csv(tmp_path), shuffle=True).shuffle_seed == 0
    assert opened(csv(tmp_path), seed=3).shuffle_seed is None


def test_a_batch_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="batch_size"):
        opened(csv(tmp_path), batch_size=0)


def test_a_format_that_forgets_a_part_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match="Json does not define suffixes, for_prediction; see Format"):

        class Json(Format):
            def read(self) -> Dataset:
                return Dataset([1.0])


def test_a_format_may_take_the_parts_of_another() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Loud(Csv):
        volume: int = 11
        suffixes: ClassVar[tuple[str, ...]] = (".loud",)

        @classmethod
        def for_prediction(cls, location: str, columns: Sequence[str], arrays: Sequence[str]) -> Self:
            return cls(path=location)

    assert Loud.reads_a_file()
    assert not Digits.reads_a_file()
