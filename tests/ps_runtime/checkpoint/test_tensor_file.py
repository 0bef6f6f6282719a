from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load

from ps_runtime.checkpoint.file_store import FileStore
from ps_runtime.checkpoint.tensor_file import DTYPES, TensorFile, write_tensors
from ps_runtime.errors import CheckpointError

NAME = "shard.safetensors"


def roundtrip(files: FileStore, tensors: dict[str, Any]) -> TensorFile:
    nbytes, checksum = write_tensors(files, NAME, tensors)
    return TensorFile(files, NAME, nbytes=nbytes, checksum=checksum)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_also_through_the_library(url: str, dtype: str) -> None:
    files = FileStore(url)
    array = np.arange(6).astype(dtype).reshape(2, 3)
    read = roundtrip(files, {"a": array}).rows("a", 0, 2)
    theirs = load(files.read(NAME))["a"]
    for found in (read, theirs):
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


base = np.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(base),
        base.T,
        base[::2, ::-3],
        base.astype(">f8"),
        np.broadcast_to(np.float32(7), (3, 2)),
        np.array(2.5),
        np.float32(2.5),
        np.zeros((0, 3)),
        np.zeros((3, 0)),
    ],
    ids=["fortran", "transposed", "strided", "big-endian", "broadcast", "0-d", "scalar", "no-rows", "no-columns"],
)
def test_any_layout_is_written_right(url: str, array: Any) -> None:
    file = roundtrip(FileStore(url), {"a": array, "b": np.ones(3, np.uint8)})
    found = file.rows("a", 0, array.shape[0] if array.shape else 1)
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)


@settings(max_examples=40, deadline=None)
@given(st.lists(hnp.arrays(st.sampled_from(list(DTYPES)), hnp.array_shapes(min_dims=0, max_side=4)), max_size=6))
def test_many_tensors_of_many_dtypes_come_back(arrays: list[Any]) -> None:
    files = FileStore("memory://tensor-file")
    file = roundtrip(files, {str(i): array for i, array in enumerate(arrays)})
    theirs = load(files.read(NAME))
    for i, array in enumerate(arrays):
        whole = file.rows(str(i), 0, len(array) if array.shape else 1)
        assert whole.tobytes() == theirs[str(i)].tobytes() == array.tobytes()
        if array.shape:
            assert file.rows(str(i), 1, len(array)).tobytes() == array[1:].tobytes()


def test_a_dtype_that_the_format_lacks_is_refused_before_anything_is_written(url: str) -> None:
    files = FileStore(url)
    with pytest.raises(TypeError, match=r"when: a checkpoint holds bool, .*; got datetime64"):
        write_tensors(files, NAME, {"when": np.zeros(1, "datetime64[s]")})
    assert files.names("") == []


def test_any_flipped_byte_and_any_cut_is_found(url: str) -> None:
    files = FileStore(url)
    nbytes, checksum = write_tensors(files, NAME, {"a": np.arange(4.0), "b": np.arange(3)})
    intact = files.read(NAME)
    assert len(intact) == nbytes
    for place in range(0, nbytes, 1 if not files.is_local else 17):
        files.put(NAME, intact[:place] + bytes([intact[place] ^ 1 << place % 8]) + intact[place + 1 :])
        with pytest.raises(CheckpointError, match=r"shard.safetensors: its bytes have changed: checksum crc32:"):
            TensorFile(files, NAME, nbytes=nbytes, checksum=checksum)
    files.put(NAME, intact[:-1])
    with pytest.raises(CheckpointError, match=rf"the file has {nbytes - 1} bytes, expected {nbytes}"):
        TensorFile(files, NAME, nbytes=nbytes, checksum=checksum)
    files.remove(NAME)
    with pytest.raises(CheckpointError, match="the file is missing"):
        TensorFile(files, NAME, nbytes=nbytes, checksum=checksum)


def test_a_tensor_that_is_not_there_is_named(url: str) -> None:
    file = roundtrip(FileStore(url), {"a": np.arange(4.0)})
    with pytest.raises(CheckpointError, match="tensor 'b' cannot be read"):
        file.rows("b", 0, 1)


def test_a_file_stays_readable_after_it_is_removed(url: str) -> None:
    files = FileStore(url)
    file = roundtrip(files, {"a": np.arange(4.0)})
    files.remove(NAME)
    np.testing.assert_array_equal(file.rows("a", 1, 3), [1.0, 2.0])


def test_what_is_no_safetensors_file_is_an_error_even_with_the_right_checksum(url: str) -> None:
    files = FileStore(url)
    files.put(NAME, b"\xff" * 16)
    with pytest.raises(CheckpointError, match="no safetensors file"):
        TensorFile(files, NAME, nbytes=16, checksum=f"crc32:{zlib.crc32(bytes([255]) * 16):08x}")
