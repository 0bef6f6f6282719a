from __future__ import annotations

import re
from contextlib import suppress

import pytest

from benchmarks import bare_protocol

pytestmark = pytest.mark.process


LENGTHS_SECS = (0.2, 2.0, 20.0)
"""A busy machine may not let every process run in the shortest."""


def test_it_measures_both_and_leaves_no_process(monkeypatch, capsys):
    monkeypatch.setattr(bare_protocol, "NUM_PAIRS", 1)
    rates = []
    for secs in LENGTHS_SECS:
        monkeypatch.setattr(bare_protocol, "WARM_UP_SECS", secs)
        monkeypatch.setattr(bare_protocol, "SECS", secs)
        with suppress(ZeroDivisionError):
            bare_protocol.main()
            said = capsys.readouterr().out
            found = re.fullmatch(r"(\d+) steps/s with a ps, (\d+) without: a ratio of [\d.]+, .*\n", said)
            assert found, said
            rates = [int(rate) for rate in found.groups()]
            if all(rates):
                break
    assert rates
    assert all(rates)


def test_a_replica_and_its_ps_train(monkeypatch):
    made = []

    class Kept(bare_protocol.Memory):
        def __init__(self) -> None:
            super().__init__()
            self.began_with = self.arena.copy()
            made.append(self)

    monkeypatch.setattr(bare_protocol, "Memory", Kept)
    for secs in LENGTHS_SECS:
        monkeypatch.setattr(bare_protocol, "WARM_UP_SECS", secs)
        monkeypatch.setattr(bare_protocol, "SECS", secs)
        rate = bare_protocol.with_ps()
        if (made[-1].counts > 0).all():
            break
    assert rate > 0
    assert (made[-1].counts > 0).all()
    assert (made[-1].arena != made[-1].began_with).any()
