"""Ids of words without a vocabulary."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 8


def hash_ids(words: Iterable[str], num_buckets: int) -> NDArray[np.int64]:
    """Return an id for each word: BLAKE2b of its UTF-8 text, modulo `num_buckets`.

    Notes
    -----
    TensorFlow takes FarmHash's Fingerprint64 modulo the number of buckets, as in
    ``categorical_column_with_hash_bucket``: its ids are other ones.

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
    for word in words:
        digest = empty.copy()  # sooner made than a new one
        digest.update(word.encode())
        digests.append(digest.digest())
    return (np.frombuffer(b"".join(digests), "<u8") % np.uint64(num_buckets)).astype(np.int64)
