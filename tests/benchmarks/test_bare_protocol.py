from __future__ import annotations

import re

from benchmarks import bare_protocol


def test_it_measures_both_and_leaves_no_process(monkeypatch, capsys):
    for name, value in {"NUM_PAIRS": 1, "WARM_UP_SECS": 0.1, "SECS": 0.1}.items():
        monkeypatch.setattr(bare_protocol, name, value)
    bare_protocol.main()
    found = re.fullmatch(r"(\d+) steps/s with a ps, (\d+) without: [\d.]+ of it, .*\n", capsys.readouterr().out)
    assert found
    assert all(int(rate) > 0 for rate in found.groups())


def test_a_replica_and_its_ps_train(monkeypatch):
    made = []

    class Kept(bare_protocol.Memory):
        def __init__(self) -> None:
            super().__init__()
            self.began_with = self.arena.copy()
            made.append(self)

    monkeypatch.setattr(bare_protocol, "Memory", Kept)
    for secs in (0.2, 2.0, 20.0):  # a busy machine may not let both replicas run in the shortest
        monkeypatch.setattr(bare_protocol, "WARM_UP_SECS", secs)
        monkeypatch.setattr(bare_protocol, "SECS", secs)
        rate = bare_protocol.with_ps()
        if (made[-1].counts > 0).all():
            break
    assert rate > 0
    assert (made[-1].counts > 0).all()
    assert (made[-1].arena != made[-1].began_with).any()
