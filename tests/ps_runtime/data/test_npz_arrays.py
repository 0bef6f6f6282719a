import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as npy_format

from psflow.ps_runtime.data.npz_arrays import read_npz
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema

PIXELS = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "arrays.npz"


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        for name, content in members.items():
            zipped.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(header: dict[str, Any], body: bytes = b"") -> bytes:
    file = io.BytesIO()
    npy_format.write_array_header_1_0(file, header)
    return file.getvalue() + body


def test_arrays_come_by_name_with_their_dtypes(path: Path) -> None:
    np.savez(path, pixels=PIXELS, age=[1, 2, 3], labels=np.array([0, 1, 0], np.int8))
    data = read_npz(path)
    features = ArraySpec("pixels", "float32", (2,)), ArraySpec("age", "int64", ())
    assert data.schema() == InputSchema(features, (ArraySpec("", "int8", ()),), label="labels")
    np.testing.assert_array_equal(data.features["pixels"], PIXELS)
    assert data.batch_size == 3


def test_features_and_label_can_be_chosen(path: Path) -> None:
    np.savez(path, pixels=PIXELS, age=[1, 2, 3], y=[1, 2, 3], other=[1])
    data = read_npz(path, label="y", features=["pixels"])
    assert list(data.features) == ["pixels"]
    assert data.labels.tolist() == [1, 2, 3]
    assert read_npz(path, label=None, features=["age"]).labels is None


def test_fortran_order_is_read_right(path: Path) -> None:
    np.savez(path, x=np.asfortranarray(PIXELS))
    np.testing.assert_array_equal(read_npz(path, None).features["x"], PIXELS)


def test_objects_are_refused_and_not_unpickled(path: Path) -> None:
    path.write_bytes(npz(x=np.array([{}, []], object), labels=[1, 2]))
    with pytest.raises(InputError, match=r"arrays\.npz: array 'x' holds Python objects, which are never unpickled"):
        read_npz(path)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is empty"),
        (b"no zip", "is not an archive of numpy.savez, or is damaged"),
        (npz(x=PIXELS, labels=[1, 2, 3])[:-30], "is not an archive of numpy.savez, or is damaged"),
        (archive(x=b"no npy"), "is not an archive of numpy.savez, or is damaged"),
        (archive(), "leaves no array for the features"),
        (
            archive(x=npy({"descr": "<f8", "fortran_order": False, "shape": (10**12,)}, bytes(8))),
            r"array 'x' claims float64\[1000000000000\], but holds \d+ bytes",
        ),
        (archive(x=npy({"descr": "<f8", "fortran_order": False, "shape": (-1, -1)}, bytes(8))), "damaged"),
        (archive(x=npy_format.magic(3, 0)), r"array 'x' has the npy version \(3, 0\)"),
        (npz(x=PIXELS, z=[1]), "expected the same number of rows in every array, but features"),
        (npz(x=np.zeros((0, 2))), "is empty, its shape is"),
        (npz(x=np.zeros(2, [("a", "f4")])), "expected numbers, booleans or fixed-length strings"),
    ],
)
def test_a_bad_archive_is_refused_with_its_name(path: Path, content: bytes, fault: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=fault) as caught:
        read_npz(path, label=None)
    assert str(path) in str(caught.value)


def test_an_archive_that_unpacks_to_too_much_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(npz(x=np.zeros(100_000)))
    monkeypatch.setattr("psflow.ps_runtime.data.npz_arrays.MAX_FILE_BYTES", 1000)
    with pytest.raises(InputError, match="the arrays have 800128 bytes, at most 1000 are read into memory"):
        read_npz(path, label=None)


@given(st.data())
def test_a_damaged_archive_is_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(npz(x=PIXELS, labels=[1, 2, 3]))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(content)
    try:
        assert read_npz(path).num_records == 3
    except InputError as error:
        assert "damaged.npz" in str(error)  # noqa: PT017 - either end is right
