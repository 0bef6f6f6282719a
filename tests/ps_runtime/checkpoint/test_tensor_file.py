from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.tensor_file import DTYPES, TensorFile, encode_tensor_header, write_tensors
from psflow.ps_runtime.errors import CheckpointError

NAME = "shard.safetensors"


def roundtrip(files: FileStore, tensors: dict[str, Any]) -> TensorFile:
    nbytes, checksum = write_tensors(files, NAME, tensors)
    return TensorFile(files, NAME, nbytes=nbytes, checksum=checksum)


def read(file: TensorFile, key: str) -> Any:
    """Return a whole tensor."""
    place = file.place(key)
    out = np.empty(place.shape, place.dtype)
    file.read([(place.start, out.reshape(-1).view(np.uint8))])
    return out


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_also_through_the_library(url: str, dtype: str) -> None:
    files = FileStore(url)
    array = np.arange(6).astype(dtype).reshape(2, 3)
    ours = read(roundtrip(files, {"a": array}), "a")
    theirs = load(files.read(NAME))["a"]
    for found in (ours, theirs):
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
    found = read(file, "a")
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)


@settings(max_examples=40, deadline=None)
@given(st.lists(hnp.arrays(st.sampled_from(list(DTYPES)), hnp.array_shapes(min_dims=0, max_side=4)), max_size=6))
def test_many_tensors_of_many_dtypes_come_back(arrays: list[Any]) -> None:
    files = FileStore("memory://tensor-file")
    file = roundtrip(files, {str(i): array for i, array in enumerate(arrays)})
    theirs = load(files.read(NAME))
    for i, array in enumerate(arrays):
        assert read(file, str(i)).tobytes() == theirs[str(i)].tobytes() == array.tobytes()


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
            TensorFile(files, NAME, nbytes=nbytes, checksum=checksum).read([])
    files.put(NAME, intact[:-1])
    with pytest.raises(CheckpointError, match=rf"the file has {nbytes - 1} bytes, expected {nbytes}"):
        TensorFile(files, NAME, nbytes=nbytes, checksum=checksum)
    files.remove(NAME)
    with pytest.raises(
        CheckpointError, match=rf"the file is missing \(expected {nbytes} bytes\); use another checkpoint, or remove"
    ):
        TensorFile(files, NAME, nbytes=nbytes, checksum=checksum)


def test_parts_of_several_tensors_are_read_in_one_go_and_again(url: str) -> None:
    file = roundtrip(FileStore(url), {"a": np.arange(9.0), "b": np.arange(5, dtype=np.int32)})
    for _ in range(2):
        a, b = np.zeros(3), np.zeros(2, np.int32)
        nothing = np.empty(0, np.uint8)
        starts = file.place("a").start + 8 * 4, file.place("b").start + 4 * 3
        file.read([(starts[1], b.view(np.uint8)), (7, nothing), (starts[0], a.view(np.uint8))])
        assert (a.tolist(), b.tolist()) == ([4, 5, 6], [3, 4])


def test_a_file_of_many_blocks(tmp_path: Any) -> None:
    """Larger than two blocks, and no part of it begins where a block does."""
    random = np.random.default_rng(0)
    arrays = {"a": random.random(170_001), "b": random.random(200_003).astype(np.float32), "c": np.arange(99)}
    file = roundtrip(FileStore(str(tmp_path)), arrays)
    for _ in range(2):
        for key, array in arrays.items():
            np.testing.assert_array_equal(read(file, key), array)
    part = np.empty(140_000)
    file.read([(file.place("a").start + 8 * 1000, part.view(np.uint8))])
    np.testing.assert_array_equal(part, arrays["a"][1000:141_000])


def test_a_tensor_that_is_not_there_is_named(url: str) -> None:
    file = roundtrip(FileStore(url), {"a": np.arange(4.0)})
    with pytest.raises(CheckpointError, match="there is no tensor 'b'"):
        file.place("b")


def test_a_file_stays_readable_after_it_is_removed(url: str) -> None:
    files = FileStore(url)
    file = roundtrip(files, {"a": np.arange(4.0)})
    files.remove(NAME)
    assert read(file, "a").tolist() == [0, 1, 2, 3]


def header_of(entries: Any) -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "its header should have 8 bytes, the file has 0"),
        (b"\xff" * 16, r"its header should have \d+ bytes, the file has 16"),
        (header_of(b"{"), "JSONDecodeError"),
        (header_of(b"[" * 100_000), "RecursionError"),
        (header_of([A]), "expected an object"),
        (header_of({"a": 3}), "TypeError"),
        (header_of({"a": A | {"dtype": "OBJECT"}}), "KeyError: 'OBJECT'"),
        (header_of({"a": A | {"shape": [-2]}}), "shape of a: expected a whole number >= 0, got -2"),
        (header_of({"a": A | {"shape": [3]}}) + bytes(8), r"a claims bytes .*: float32\[3\]"),
        (header_of({"a": A | {"data_offsets": [-8, 0]}}), "data_offsets of a: expected a whole number >= 0, got -8"),
        (header_of({"a": A | {"data_offsets": [8, 0]}}) + bytes(8), "a claims bytes"),
        (header_of({"a": A | {"data_offsets": [0, 8, 16]}}), "ValueError: too many values"),
        (header_of({"a": A}) + bytes(7), r"a claims bytes \[69, 77\) of 76"),
    ],
)
def test_what_is_no_safetensors_file_is_an_error_even_with_the_right_checksum(
    url: str, content: bytes, words: str
) -> None:
    files = FileStore(url)
    files.put(NAME, content)
    with pytest.raises(CheckpointError, match=rf"not a safetensors file: .*{words}"):
        TensorFile(files, NAME, nbytes=len(content), checksum=f"crc32:{zlib.crc32(content):08x}")


@pytest.mark.parametrize("name", ["a", "ab", "abcdefgh"])
def test_tensors_begin_at_a_multiple_of_eight_bytes(name: str) -> None:
    assert len(encode_tensor_header({name: np.zeros(3)})) % 8 == 0
