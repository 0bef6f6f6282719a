from __future__ import annotations

import time

import pytest

from psflow.flows.timings import Timings, shown_timings
from psflow.ps_runtime.roles.events import Evaluation, FirstStep, LogMessage, RoleEnded


def test_phases_are_in_the_order_of_their_ends() -> None:
    timings, now = Timings(), time.time()
    timings.mark("plan")
    for at, role in ((now + 2, "chief-0"), (now + 3, "worker-0"), (now + 90, "worker-0")):
        timings.handle(FirstStep(time=at, role=role))  # the last one after a restart
    for step in (0, 100):
        timings.handle(Evaluation(step, {}, 1.0, time=now + 4 + step / 100))
    timings.handle(LogMessage(20, "mine", "said", time=now + 5))
    for index in range(2):
        timings.handle(RoleEnded(role=f"worker-{index}", time=now + 7 - index))
    rows = timings.facts()
    assert [row["phase"] for row in rows] == ["plan", "first step", "last evaluation", "end of worker"]
    assert [row["secs"] for row in rows[1:]] == pytest.approx([2, 3, 2], abs=0.1)
    assert 0 < rows[0]["cpu_secs"] <= rows[0]["at_secs"] + 1
    assert all("cpu_secs" not in row for row in rows[1:])  # of other processes
    head, first, *_ = shown_timings(rows)
    assert head.split() == ["ends", "at", "seconds", "CPU", "phase"]
    assert first.split()[-1] == "plan"
