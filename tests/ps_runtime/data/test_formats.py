from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.data.formats import FORMATS, open_dataset
from psflow.ps_runtime.errors import InputError


@pytest.fixture
def csv(tmp_path: Path) -> str:
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    return str(tmp_path / "t.csv")


def digits_spec(folder: Path) -> dict[str, Any]:
    return {"format": "digits", "split": "test"}


def csv_spec(folder: Path) -> dict[str, Any]:
    (folder / "t.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    return {"format": "csv", "path": folder / "t.csv", "label": "y"}


def tsv_spec(folder: Path) -> dict[str, Any]:
    (folder / "t.txt").write_text("a\tb\ty\n1\t2\t0\n3\t4\t1\n")
    return {"format": "tsv", "path": str(folder / "t.txt"), "label": "y", "features": ["b"]}


def npz_spec(folder: Path) -> dict[str, Any]:
    np.savez(folder / "t.npz", x=[[1.0], [2.0]], labels=[0, 1])
    return {"format": "npz", "path": str(folder / "t.npz")}


def idx_spec(folder: Path) -> dict[str, Any]:
    (folder / "images").write_bytes(b"\0\0\x08\3" + b"\0\0\0\2" * 3 + bytes(range(8)))
    (folder / "labels").write_bytes(b"\0\0\x08\1" + b"\0\0\0\2" + bytes([1, 0]))
    return {"format": "idx", "path": folder / "images", "labels_path": str(folder / "labels")}


SPECS: list[Callable[[Path], dict[str, Any]]] = [digits_spec, csv_spec, tsv_spec, npz_spec, idx_spec]


def test_the_laws_run_for_every_format(tmp_path: Path) -> None:
    assert {make(tmp_path)["format"] for make in SPECS} == set(FORMATS)


@pytest.mark.parametrize("make", SPECS)
class TestLaws:
    def test_one_batch_in_file_order_with_a_label_for_each_row(self, make: Any, tmp_path: Path) -> None:
        data = open_dataset(make(tmp_path))
        assert (data.batch_size, data.num_epochs, data.shuffle_seed) == (data.num_records, 1, None)
        assert len(data.labels) == data.num_records

    def test_reading_again_gives_the_same(self, make: Any, tmp_path: Path) -> None:
        spec = make(tmp_path)
        assert open_dataset(spec).digest() == open_dataset(spec).digest()

    def test_the_common_keys_apply(self, make: Any, tmp_path: Path) -> None:
        common = {"batch_size": 2, "epochs": None, "shuffle": True, "seed": 7}
        data = open_dataset({**make(tmp_path), **common})
        assert (data.batch_size, data.num_epochs, data.shuffle_seed) == (2, None, 7)

    def test_an_unknown_key_is_refused(self, make: Any, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"unknown key 'batchsize' .*; did you mean 'batch_size'\?"):
            open_dataset({**make(tmp_path), "batchsize": 2})


def test_a_key_of_another_format_is_refused(csv: str) -> None:
    with pytest.raises(InputError, match="unknown key 'split' for the input format 'csv'"):
        open_dataset({"format": "csv", "path": csv, "split": "train"})


def test_the_path_of_labels_is_checked() -> None:
    with pytest.raises(InputError, match="labels_path of the input is 3: expected a path or URL, or null"):
        open_dataset({"format": "idx", "path": "images", "labels_path": 3})


def test_null_means_the_default(csv: str) -> None:
    data = open_dataset({"format": "csv", "path": csv, "label": None, "features": None, "batch_size": None})
    assert (data.batch_size, data.columns, data.labels) == (2, ("a", "b", "y"), None)


def test_shuffle_without_a_seed_has_seed_0_and_a_seed_alone_does_not_shuffle(csv: str) -> None:
    assert open_dataset({"format": "csv", "path": csv, "shuffle": True}).shuffle_seed == 0
    assert open_dataset({"format": "csv", "path": csv, "seed": 3}).shuffle_seed is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("cvs", r"unknown input format 'cvs': expected one of digits, csv, tsv, npz, idx; did you mean 'csv'\?"),
        (None, "unknown input format None"),
        (["csv"], r"unknown input format \['csv'\]"),
    ],
)
def test_an_unknown_format_is_refused(name: object, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        open_dataset({"format": name})


def test_all_faults_come_in_one_error() -> None:
    values = {"label": 3, "features": "a", "batch_size": 0, "shuffle": 1, "epochs": True, "seed": -1}
    with pytest.raises(InputError) as caught:
        open_dataset({"format": "csv", **values})
    assert caught.value.faults == (
        "the input format 'csv' needs a path",
        "label of the input is 3: expected a str, or null",
        "features of the input is 'a': expected a list of str, or null",
        "batch_size of the input is 0: expected an int >= 1, or null",
        "shuffle of the input is 1: expected true or false",
        "epochs of the input is True: expected an int >= 1, or null to repeat for ever",
        "seed of the input is -1: expected an int >= 0, or null",
    )
