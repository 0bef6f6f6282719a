"""Copies by several threads are copies."""

from __future__ import annotations

import numpy as np
import pytest

from psflow.ps_runtime.roles import ps


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
@pytest.mark.parametrize("is_large", [False, True])
def test_everything_is_copied(num_threads: int, is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ps, "NUM_THREADS", num_threads)
    monkeypatch.setattr(ps, "LARGE_BYTES", 0 if is_large else 1 << 30)
    sources = [np.arange(1001, dtype=np.float32), np.arange(5, dtype=np.uint8), np.empty(0, np.float64)]
    targets = [np.full_like(source, 99) for source in sources]
    ps.copy_arrays(list(zip(targets, sources, strict=True)))
    assert [list(target) for target in targets] == [list(source) for source in sources]


def test_a_failure_of_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ps, "NUM_THREADS", 2)
    monkeypatch.setattr(ps, "LARGE_BYTES", 0)
    target = np.zeros(10, np.float32)
    target.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        ps.copy_arrays([(target, np.ones(10, np.float32))])
