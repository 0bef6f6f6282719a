"""Encodes the numbers of pushes and pulls in the wire format that a role states in its HELLO.

Float32 numbers may travel as bfloat16, the upper half of their bits, rounded. numpy has no such type: the bits are
uint16 here. All other bytes of a body travel unchanged, and so do the numbers that no gradient moves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import Body
from psflow.ps_runtime.protocol.payloads import PushBuffer, PushLayout, RowLayout
from psflow.ps_runtime.specs.layout import ArenaGroup, ShardLayout, aligned
from psflow.ps_runtime.specs.variables import TableSpec
from psflow.ps_runtime.specs.wire_format import WireFormat

Bits = NDArray[np.uint16]
"""The bits of bfloat16."""

BLOCK_SIZE = 1 << 16
"""How many numbers are converted at a time: they and the scratch memory stay in the cache of a core."""

_MAGNITUDE, _INFINITY, _LARGEST = np.uint32(0x7FFF_FFFF), np.uint32(0x7F80_0000), np.uint32(0x7F7F_0000)
"""Masks of float32 words: all bits but the sign; infinity; the largest number that is a bfloat16."""


def narrow(values: NDArray[np.float32], bits: Bits, scratch: NDArray[np.uint32]) -> None:
    """Round flat `values` to bfloat16, to the nearest even, and write their `bits`; see `WireFormat`.

    `scratch` has room for a block, or for all `values`.
    """
    words = values.view(np.uint32)
    for start in range(0, values.size, BLOCK_SIZE):
        block = slice(start, start + BLOCK_SIZE)
        some, sums = words[block], scratch[: min(BLOCK_SIZE, values.size - start)]
        np.right_shift(some, 16, out=sums)
        np.bitwise_and(sums, 1, out=sums)
        np.add(sums, 0x7FFF, out=sums)
        np.add(sums, some, out=sums)  # a mantissa that overflows carries into the exponent
        np.right_shift(sums, 16, out=bits[block], casting="unsafe")
        if not math.isfinite(np.vdot(values[block], values[block])):
            _correct(some, bits[block])


def _correct(words: NDArray[np.uint32], bits: Bits) -> None:
    """Correct the bits of NaN, to which the sum must not carry, and of finite numbers that were rounded to infinity."""
    magnitudes = words & _MAGNITUDE
    signs = (words >> 16).astype(np.uint16) & np.uint16(0x8000)
    np.copyto(bits, signs | np.uint16(0x7FC0), where=magnitudes > _INFINITY)
    np.copyto(bits, signs | np.uint16(0x7F7F), where=(magnitudes > _LARGEST) & (magnitudes < _INFINITY))


def widen(bits: Bits, values: NDArray[np.float32]) -> None:
    """Write the flat float32 `values` of bfloat16 `bits`; exact."""
    words = values.view(np.uint32)
    for start in range(0, bits.size, BLOCK_SIZE):
        block = slice(start, start + BLOCK_SIZE)
        np.left_shift(bits[block], 16, out=words[block], dtype=np.uint32)


class _Section(NamedTuple):
    """A group of an arena: its bytes there, and its bytes in a body."""

    arena: slice
    body: slice
    is_narrow: bool


class WireCodec:
    """The bodies of one shard in one wire format.

    Parameters
    ----------
    layout, push_layout
        Those of the shard.
    states
        Indices of the optimizers whose variables no gradient moves: these stay exact.

    Notes
    -----
    Not thread-safe. A result is valid until the next call for another push, or another pull. Float32 is not copied.
    """

    def __init__(
        self, wire: WireFormat, layout: ShardLayout, push_layout: PushLayout, states: Collection[int] = ()
    ) -> None:
        self.narrows_gradients = wire.gradients == "bfloat16"
        self.narrows_parameters = wire.parameters == "bfloat16"

        def is_narrow(part: ArenaGroup | TableSpec) -> bool:
            return part.dtype == "float32" and part.optimizer is not None and part.optimizer not in states

        self._sections: list[_Section] = []
        end = gradients_end = 0
        for group in layout.groups:
            start, nbytes = aligned(end), group.stop - group.start
            end = start + (nbytes // 2 if is_narrow(group) else nbytes)
            self._sections.append(_Section(slice(group.start, group.stop), slice(start, end), is_narrow(group)))
            if group.optimizer is not None:
                gradients_end = end
        self._arena_nbytes = end
        self._pushed = self._sections[: sum(group.optimizer is not None for group in layout.groups)]
        self._layout = push_layout
        tables = push_layout.rows.tables
        rows = RowLayout(tuple(replace(t, dtype="uint16") if is_narrow(t) else t for t in tables))
        self._body_layout = replace(push_layout, gradient_nbytes=gradients_end, rows=rows)
        self._push: PushBuffer | None = None
        self._push_room = np.empty(0, np.uint8)
        self._pull_room = np.empty(0, np.uint8)
        self._scratch = np.empty(0, np.uint32)

    def encode_push(self, push: PushBuffer) -> Body:
        """Return the body that carries `push`."""
        if not self.narrows_gradients:
            return push.body
        rows = push.rows()
        body = self._new_push(self._body_layout, [len(ids) for ids, _ in rows])
        self._copy_head(push, body)
        self._narrow_sections(self._pushed, push.gradients, body.gradients)
        for (_, values), bits in zip(rows, body.place_rows([ids for ids, _ in rows]), strict=True):
            self._narrow_rows(values, bits)
        return body.body

    def decode_push(self, body: Body) -> PushBuffer:
        """Return the push that `body` carries.

        Raises ProtocolError if it has another size than this format requires.
        """
        assert self.narrows_gradients, "float32 is not decoded"
        given = PushBuffer(self._body_layout, body)
        rows = given.rows()
        push = self._new_push(self._layout, [len(ids) for ids, _ in rows])
        self._copy_head(given, push)
        self._widen_sections(self._pushed, given.gradients, push.gradients)
        for (_, bits), values in zip(rows, push.place_rows([ids for ids, _ in rows]), strict=True):
            _widen_rows(bits, values)
        return push

    def arena_nbytes(self, arena: NDArray[np.uint8]) -> int:
        """Return the size of the body that carries the bytes of an arena."""
        return self._arena_nbytes if self.narrows_parameters else arena.nbytes

    def encode_arena(self, arena: NDArray[np.uint8]) -> memoryview:
        """Return the body that carries the bytes of an arena."""
        if not self.narrows_parameters:
            return arena.data
        body = self._pull_body(self._arena_nbytes)
        self._narrow_sections(self._sections, arena, body)
        return body.data

    def arena_room(self, arena: NDArray[np.uint8]) -> memoryview:
        """Return memory in which to receive a body for `decode_arena`."""
        return self._pull_body(self._arena_nbytes).data if self.narrows_parameters else arena.data

    def decode_arena(self, body: Body, arena: NDArray[np.uint8]) -> None:
        """Write what `body` carries into `arena`, unless it was received there.

        Raises ProtocolError if it has another size than this format requires.
        """
        expected = self.arena_nbytes(arena)
        if len(body) != expected:
            raise ProtocolError("peer", f"expected {expected} bytes of parameters, got {len(body)}")
        if self.narrows_parameters:
            self._widen_sections(self._sections, np.frombuffer(body, np.uint8), arena)

    def encode_rows(self, rows: memoryview, counts: Sequence[int]) -> memoryview:
        """Return the body that carries rows of tables, laid out as by `RowLayout`."""
        if not self.narrows_parameters:
            return rows
        layout = self._body_layout.rows
        body = self._pull_body(layout.values_nbytes(counts))
        every_values = self._layout.rows.values(np.frombuffer(rows, np.uint8), counts)
        for values, bits in zip(every_values, layout.values(body, counts), strict=True):
            self._narrow_rows(values, bits)
        return body.data

    def decode_rows(self, body: Body, counts: Sequence[int]) -> list[NDArray[Any]]:
        """Return the rows that `body` carries: in new memory, or as views of a body in float32.

        Raises ProtocolError if it has another size than this format requires.
        """
        if not self.narrows_parameters:
            return self._layout.rows.values(np.frombuffer(body, np.uint8), counts)
        every_bits = self._body_layout.rows.values(np.frombuffer(body, np.uint8), counts)
        found = [np.empty(bits.shape, t.dtype) for bits, t in zip(every_bits, self._layout.rows.tables, strict=True)]
        for bits, values in zip(every_bits, found, strict=True):
            _widen_rows(bits, values)
        return found

    def _new_push(self, layout: PushLayout, counts: Sequence[int]) -> PushBuffer:
        """Return a push in memory that is used again; the last one, where all have one size."""
        if self._push is None or counts:
            nbytes = layout.nbytes(counts)
            if len(self._push_room) < nbytes:
                self._push_room = np.zeros(nbytes, np.uint8)
            self._push = PushBuffer(layout, self._push_room[:nbytes].data)
        return self._push

    def _pull_body(self, nbytes: int) -> NDArray[np.uint8]:
        if len(self._pull_room) < nbytes:
            self._pull_room = np.zeros(nbytes, np.uint8)
        return self._pull_room[:nbytes]

    def _copy_head(self, source: PushBuffer, target: PushBuffer) -> None:
        """Copy the number of examples, the learning rates and the mask, which lie in the same places."""
        end = self._layout.mask_start + self._layout.num_pieces
        target.bytes[:end] = source.bytes[:end]

    def _narrow_sections(self, sections: Sequence[_Section], arena: NDArray[np.uint8], body: NDArray[np.uint8]) -> None:
        for section in sections:
            if section.is_narrow:
                self._narrow(arena[section.arena].view(np.float32), body[section.body].view(np.uint16))
            else:
                body[section.body] = arena[section.arena]

    @staticmethod
    def _widen_sections(sections: Sequence[_Section], body: NDArray[np.uint8], arena: NDArray[np.uint8]) -> None:
        for section in sections:
            if section.is_narrow:
                widen(body[section.body].view(np.uint16), arena[section.arena].view(np.float32))
            else:
                arena[section.arena] = body[section.body]

    def _narrow_rows(self, values: NDArray[Any], bits: NDArray[Any]) -> None:
        if bits.dtype == values.dtype:
            bits[...] = values
        else:
            self._narrow(values.reshape(-1), bits.reshape(-1))

    def _narrow(self, values: NDArray[np.float32], bits: Bits) -> None:
        if len(self._scratch) < min(values.size, BLOCK_SIZE):
            self._scratch = np.empty(min(values.size, BLOCK_SIZE), np.uint32)
        narrow(values, bits, self._scratch)


def _widen_rows(bits: NDArray[Any], values: NDArray[Any]) -> None:
    if bits.dtype == values.dtype:
        values[...] = bits
    else:
        widen(bits.reshape(-1), values.reshape(-1))
