"""Hashes strings to ids without a vocabulary."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 8


def hash_ids(strings: Iterable[str], num_buckets: int) -> NDArray[np.int64]:
    """Return an id for each string: BLAKE2b of its UTF-8 text, modulo `num_buckets`.

    Notes
    -----
    Ids are the same on every machine and in every version.

    TensorFlow's ``categorical_column_with_hash_bucket`` uses FarmHash's Fingerprint64 modulo the number of buckets, so
    its ids differ.

    References
    ----------
    RFC 7693, The BLAKE2 Cryptographic Hash and Message Authentication Code (MAC). Here without a key, with a digest of
    8 bytes that is read as a little-endian number.

    Examples
    --------
    >>> hash_ids(["red", "green", "1"], 10).tolist()
    [1, 8, 0]
    """
    empty = hashlib.blake2b(digest_size=DIGEST_BYTES)
    digests = []
    for string in strings:
        digest = empty.copy()  # a copy is faster than a new one
        digest.update(string.encode())
        digests.append(digest.digest())
    return (np.frombuffer(b"".join(digests), "<u8") % np.uint64(num_buckets)).astype(np.int64)
