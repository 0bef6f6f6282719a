"""A shard announces each change before it makes it, from the first byte to the last."""

from __future__ import annotations

import numpy as np
import pytest

from psflow.ps_runtime.optimizers.adam import Adam
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent, Momentum
from psflow.ps_runtime.protocol.payloads import PushBuffer
from psflow.ps_runtime.server import shard as shard_module
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

RULES = (Momentum(learning_rate=1.0), GradientDescent(learning_rate=1.0), Adam())
SHAPES = [
    ("a", (37, 3), "float32", 0),
    ("e", (0, 4), "float32", 0),
    ("b", (11,), "float64", 1),
    ("c", (), "float32", 1),
    ("d", (65,), "float16", 1),
    ("f", (20, 2), "float32", 0),
    ("g", (9,), "float64", 2),
    ("u", (50,), "float32", None),
    ("z", (0,), "int64", None),
]
MODEL = ModelSpec(tuple(VariableSpec(*s) for s in SHAPES), tuple(r.config() for r in RULES))


class Readers:
    """Sees to it that no byte changes that was not announced, and none after another."""

    def __init__(self, arena):
        self.arena, self.reached, self.announced = arena, 0, 0

    def begin(self, counter):
        self.before = self.arena.bytes.copy()
        self.reached = self.announced = 0

    def await_past(self, stop):
        start = self.arena._words[2]
        assert self.announced <= start <= stop
        self.check()
        self.done, self.reached, self.announced = self.arena.bytes.copy(), start, stop

    def check(self):
        now = self.arena.bytes
        assert (now[self.announced :] == self.before[self.announced :]).all()  # nothing beyond what was announced
        if self.announced:
            assert (now[: self.reached] == self.done[: self.reached]).all()  # nothing before where it is


@pytest.mark.parametrize("num_ps", [1, 2, 3])
@pytest.mark.parametrize("block", [4, 1 << 17])
def test_changes_are_announced_in_order(monkeypatch, num_ps, block):
    monkeypatch.setattr(shard_module, "BLOCK_SIZE", block)
    rng = np.random.default_rng(1)
    for layout in place(MODEL, num_ps):
        shard = Shard(layout, RULES, num_shards=num_ps)
        readers = shard.arena.readers = Readers(shard.arena)
        shard.initialize(np.ones(layout.nbytes, np.uint8).data)
        readers.check()
        shard.snapshot_step = None
        num = shard.push_layout.num_pieces
        for mask in [np.ones(num), np.zeros(num), *(rng.integers(0, 2, (20, num)))]:
            push = PushBuffer.empty(shard.push_layout)
            push.mask[:] = mask
            push.learning_rates[:] = 0.5
            for group in layout.groups:
                if group.optimizer is not None:
                    push.gradients[group.start : group.stop].view(group.dtype)[:] = rng.normal(
                        size=(group.stop - group.start) // np.dtype(group.dtype).itemsize
                    )
            shard._update(push, push.rows())
            readers.check()
            if mask.all():
                assert (shard.arena.bytes[: layout.gradient_nbytes] != readers.before[: layout.gradient_nbytes]).any()
        shard.arrays.copy_into(shard.snapshot_arrays, lambda pairs: [np.copyto(a, b) for a, b in pairs])
        shard.restore(7)
        readers.check()
