"""Bodies that travel at every step: a push, and the grant that answers it. Fixed binary forms."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ps_runtime.errors import ProtocolError
from ps_runtime.specs.layout import ALIGNMENT_BYTES, ShardLayout

__all__ = ["GRANT", "PushBuffer", "PushLayout"]

GRANT = struct.Struct("<qqqqq")
"""Begin of the body of a GRANT: global_step, epoch, start, stop, staleness of the last push. After it, where there are
several ps, the entries that the replica shall hand on to the others."""

_COUNT = struct.Struct("<Q")


@dataclass(frozen=True)
class PushLayout:
    """Where the parts of a push to one shard lie.

    ``[num_examples | learning rate of each optimizer | a byte for each piece: has a gradient | gradients]``,
    the gradients aligned and laid out as the shard's arena is.
    """

    num_optimizers: int
    num_pieces: int
    gradient_nbytes: int

    @classmethod
    def of(cls, layout: ShardLayout, num_optimizers: int) -> PushLayout:
        """Return the layout of pushes to the shard that `layout` describes."""
        num_pieces = sum(p.offset + p.nbytes <= layout.gradient_nbytes for p in layout.pieces)
        return cls(num_optimizers, num_pieces, layout.gradient_nbytes)

    @property
    def rates_start(self) -> int:
        """Offset of the learning rates."""
        return _COUNT.size

    @property
    def mask_start(self) -> int:
        """Offset of the mask of pieces."""
        return self.rates_start + 8 * self.num_optimizers

    @property
    def gradients_start(self) -> int:
        """Offset of the gradients."""
        return -(-(self.mask_start + self.num_pieces) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    @property
    def nbytes(self) -> int:
        """Size of a push in bytes: all pushes to a shard have the same."""
        return self.gradients_start + self.gradient_nbytes


class PushBuffer:
    """One push, as views of one buffer: what the worker fills and the shard reads.

    Parameters
    ----------
    layout : PushLayout
    buffer : bytes-like, optional
        What was received; a fresh buffer if left out.

    Raises
    ------
    ProtocolError
        If `buffer` has another length than `layout` says.
    """

    def __init__(self, layout: PushLayout, buffer: bytes | bytearray | memoryview | None = None) -> None:
        if buffer is None:
            self.bytes: NDArray[np.uint8] = np.zeros(layout.nbytes, np.uint8)
        else:
            if len(buffer) != layout.nbytes:
                raise ProtocolError("peer", f"expected a push of {layout.nbytes} bytes, got {len(buffer)}")
            self.bytes = np.frombuffer(buffer, np.uint8)
            if not self.bytes.flags.writeable:
                self.bytes = self.bytes.copy()
        self.learning_rates: NDArray[np.float64] = self.bytes[layout.rates_start : layout.mask_start].view(np.float64)
        self.mask: NDArray[np.uint8] = self.bytes[layout.mask_start : layout.mask_start + layout.num_pieces]
        self.gradients: NDArray[np.uint8] = self.bytes[layout.gradients_start :]

    @property
    def num_examples(self) -> int:
        """How many examples the gradient is of."""
        return int(_COUNT.unpack_from(self.bytes.data)[0])

    @num_examples.setter
    def num_examples(self, value: int) -> None:
        _COUNT.pack_into(self.bytes.data, 0, value)
