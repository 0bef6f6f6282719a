import json
import pickle
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from psflow.ps_runtime.data.arrays import Columns, named_arrays
from psflow.ps_runtime.data.batch_codec import decode_batch, encode_batch
from psflow.ps_runtime.errors import InputError, ProtocolError

DTYPES = st.sampled_from(["?", "i1", "u2", "i4", "i8", ">i4", "f2", "f4", ">f4", "f8", "c16", "S3", "U2"])


@st.composite
def columns(draw: st.DrawFn, num_rows: int) -> Columns:
    tails = st.lists(st.integers(1, 3), max_size=2).map(tuple)
    arrays = tails.flatmap(lambda tail: npst.arrays(draw(DTYPES), (num_rows, *tail)))
    return draw(arrays | st.dictionaries(st.text(max_size=5), arrays, min_size=1, max_size=3))


batches = st.integers(1, 4).flatmap(lambda n: st.tuples(columns(n), st.none() | columns(n)))


def same(a: Columns | None, b: Columns | None) -> bool:
    if a is None or b is None:
        return a is b
    left, right = list(named_arrays(a)), list(named_arrays(b))
    return [n for n, _ in left] == [n for n, _ in right] and all(
        x.dtype == y.dtype.newbyteorder("=") and x.tobytes() == y.astype(x.dtype).tobytes() and x.shape == y.shape
        for (_, x), (_, y) in zip(left, right, strict=True)
    )


@given(batches, st.sampled_from([bytes, bytearray, memoryview]))
def test_a_batch_comes_back(batch: tuple[Columns, Columns | None], kind: Any) -> None:
    features, labels = decode_batch(kind(encode_batch(*batch)))
    assert same(features, batch[0])
    assert same(labels, batch[1])


def test_decoded_arrays_are_read_only_views_at_aligned_offsets() -> None:
    buffer = bytearray(encode_batch({"a": np.ones(3, "u1"), "b": np.arange(3.0)}, np.arange(3)))
    features, labels = decode_batch(buffer)
    base = np.frombuffer(buffer, np.uint8).ctypes.data
    for _, array in named_arrays(features, labels):
        assert np.shares_memory(array, np.frombuffer(buffer, np.uint8))
        assert (array.ctypes.data - base) % 64 == 0
        assert not array.flags.writeable


def test_objects_are_not_encoded() -> None:
    with pytest.raises(InputError, match="features has dtype object"):
        encode_batch(np.array([{}]), None)


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(ProtocolError, match="peer broke the protocol: a batch cannot be read"):
        decode_batch(garbage)


@given(batches, st.data())
def test_a_damaged_batch_is_refused_or_still_a_batch(
    batch: tuple[Columns, Columns | None], data: st.DataObject
) -> None:
    encoded = bytearray(encode_batch(*batch))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        features, labels = decode_batch(encoded)
    except ProtocolError:
        return
    assert sum(array.nbytes for _, array in named_arrays(features, labels)) <= len(encoded)


@given(batches, st.data())
def test_a_batch_of_another_length_is_refused(batch: tuple[Columns, Columns | None], data: st.DataObject) -> None:
    encoded = encode_batch(*batch)
    with pytest.raises(ProtocolError):
        decode_batch(encoded[: data.draw(st.integers(0, len(encoded) - 1))])
    with pytest.raises(ProtocolError, match=r"expected .* bytes, got"):
        decode_batch(encoded + b"\0")


def with_header(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    head = struct.pack("<I", len(text)) + text
    return head + bytes(-len(head) % 64) + body


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "expected at least 4 bytes, got 0"),
        (struct.pack("<I", 2**32 - 1), "its header claims 4294967295 bytes"),
        (with_header(b" " * (2 * 1024 * 1024)), "at most 1048576 are allowed"),
        (with_header(b"{"), "its header is not JSON"),
        (with_header(b"[" * 100_000), "its header is not JSON"),
        (with_header(b"\xff"), "its header is not JSON"),
        (with_header([]), "does not describe features and labels"),
        (with_header({"features": ["<f4", [1]]}), "does not describe features and labels"),
        (with_header({"features": None, "labels": None}), "features is not described by a dtype and a shape"),
        (with_header({"features": {}, "labels": None}), "features is not described by a dtype and a shape"),
        (with_header({"features": {"a": {"b": []}}, "labels": None}), r"features\['a'\] is not described"),
        (with_header({"features": ["|O", [1]], "labels": None}, bytes(8)), "unknown dtype '|O'"),
        (with_header({"features": ["f4,f4", [1]], "labels": None}, bytes(8)), "unknown dtype 'f4,f4'"),
        (with_header({"features": [">f4", [1]], "labels": None}, bytes(4)), "unknown dtype '>f4'"),
        (with_header({"features": ["float32", [1]], "labels": None}, bytes(4)), "unknown dtype 'float32'"),
        (with_header({"features": ["<M8[s]", [1]], "labels": None}, bytes(8)), "unknown dtype"),
        (with_header({"features": ["|V4", [1]], "labels": None}, bytes(4)), "unknown dtype"),
        (with_header({"features": ["<U0", [1]], "labels": None}), "unknown dtype"),
        (with_header({"features": ["(", [1]], "labels": None}), "unknown dtype"),
        (with_header({"features": ["<f4", []], "labels": None}, bytes(4)), "impossible shape"),
        (with_header({"features": ["<f4", [1] * 33], "labels": None}, bytes(4)), "impossible shape"),
        (with_header({"features": ["<f4", [0, 2**62]], "labels": None}), "impossible shape"),
        (with_header({"features": ["<f4", [-1]], "labels": None}), "impossible shape"),
        (with_header({"features": ["<f4", [True]], "labels": None}, bytes(4)), "impossible shape"),
        (with_header({"features": ["<f4", [1.0]], "labels": None}, bytes(4)), "impossible shape"),
        (with_header({"features": ["<f4", [2**62, 2**62]], "labels": None}, bytes(4)), "features ends at byte"),
        (with_header({"features": ["|u1", [2]], "labels": ["|u1", [1]]}, bytes(65)), "different numbers of rows"),
    ],
)
def test_each_bound_is_checked(encoded: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason.replace("|O", r"\|O")):
        decode_batch(encoded)


def test_a_pickle_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_batch(pickle.dumps((np.ones(3), np.ones(3))))
