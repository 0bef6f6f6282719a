from __future__ import annotations

import numpy as np

from psflow.ps_runtime.columns.hashing import hash_ids


def test_a_hash_is_that_of_the_reference_implementation() -> None:
    # printf abc | b2sum -l 64 prints d8bb14d833d59559
    digest = int.from_bytes(bytes.fromhex("d8bb14d833d59559"), "little")
    assert hash_ids(["abc"], 1_000_003).tolist() == [digest % 1_000_003]


def test_hashes_fill_their_buckets_evenly() -> None:
    counts = np.bincount(hash_ids(map(str, range(20_000)), 10), minlength=10)
    assert counts.min() > 1850
    assert counts.max() < 2150


def test_text_beyond_ascii_and_none_at_all_have_ids() -> None:
    assert hash_ids(["", "é", "語"], 2**61).tolist() != [0, 0, 0]
    assert hash_ids([], 3).shape == (0,)
