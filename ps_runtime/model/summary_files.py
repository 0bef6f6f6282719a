"""Summaries other than numbers, as small files: histograms, images and texts."""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 48_000
"""Limit for the pixels of an image, or a text, in bytes: an event of a role must hold them."""
NAME = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*")
"""Names of summaries that become files: relative paths, without ``..``."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values in intervals of equal width."""

    values: NDArray[Any]
    buckets: int
    suffix = ".json"

    def content(self, step: int) -> bytes:
        """Return the histogram as JSON: ``counts`` between ``edges``, and statistics of the finite values."""
        values = self.values.reshape(-1)
        finite = values[np.isfinite(values)].astype(np.float64)
        counts, edges = np.histogram(finite, self.buckets)
        facts: dict[str, Any] = {"step": step, "num": values.size, "num_non_finite": values.size - finite.size}
        if finite.size:
            facts |= {"min": float(finite.min()), "max": float(finite.max())}
            facts |= {"mean": float(finite.mean()), "std": float(finite.std())}
        return json.dumps(facts | {"counts": counts.tolist(), "edges": edges.tolist()}).encode()


@dataclass(frozen=True, slots=True)
class Image:
    """Pixels of shape (height, width, channels), uint8: 1 channel is grey, 3 are RGB, 4 are RGBA."""

    pixels: NDArray[np.uint8]
    suffix = ".png"

    def content(self, step: int) -> bytes:
        """Return the image as PNG (RFC 2083), each row unfiltered."""
        height, width, channels = self.pixels.shape
        color = {1: 0, 3: 2, 4: 6}[channels]
        rows = b"".join(b"\0" + row.tobytes() for row in self.pixels)
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            _chunk(kind, data)
            for kind, data in (
                (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)),
                (b"tEXt", f"step\0{step}".encode()),
                (b"IDAT", zlib.compress(rows)),
                (b"IEND", b""),
            )
        )


@dataclass(frozen=True, slots=True)
class Text:
    """A text in Markdown."""

    text: str
    suffix = ".md"

    def content(self, step: int) -> bytes:
        """Return the text below a line with the step."""
        return f"<!-- step {step} -->\n{self.text}\n".encode()


FileSummary = Histogram | Image | Text


def as_pixels(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an image as uint8: 0 becomes black, or mid-grey where there are numbers below 0.

    uint8 stays unchanged. Else the largest number becomes 255; with numbers below 0, either the lowest becomes 0, or
    the largest 255. NaN and infinity count as 0.
    """
    if image.dtype == np.uint8:
        return image.copy()
    values = np.nan_to_num(image.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    lowest, highest = values.min(), values.max()
    if lowest >= 0:
        scaled = values * (255 / highest if highest else 0)
    else:
        scaled = 127 + values * min(127 / -lowest, 128 / highest if highest > 0 else np.inf)
    return np.asarray(scaled.round(), np.uint8)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
