"""The ledger: a case that became slower is named, and an entry is appended only on request."""

import pandas as pd
import pytest

from benchmarks import ledger
from benchmarks.ledger import slower
from benchmarks.systems.base import System

CASE = "async/shm/1ps/2w"


def entries(*costs, processor="a processor"):
    return pd.DataFrame([{"commit": "1234", "processor": processor, CASE: cost, "old": 1.0} for cost in costs])


def entry(cost, **more):
    return {"commit": "5678", "processor": "a processor", CASE: cost, **more}


def test_what_costs_a_twentieth_more_than_the_median_of_the_last_ten_is_named():
    before = entries(9.0, 9.0, 9.0, *[1.9, 2.0, 2.1] * 3, 2.0)
    assert list(slower(entry(2.09), before)) == []
    [line] = slower(entry(2.2), before)
    assert line == f"{CASE} costs 2.20 bare gradients, 10% more than the 2.00 of before"


def test_entries_of_another_processor_and_new_cases_are_not_compared():
    [line] = slower(entry(5.0), entries(2.0, processor="another"))
    assert line == "the ledger has no entry of this processor, a processor; make ledger appends one"
    assert list(slower(entry(2.0, new=7.0), entries(2.0))) == []


@pytest.fixture
def path(monkeypatch, tmp_path):
    path = tmp_path / "ledger.csv"
    path.write_text(ledger.LEDGER.read_text().splitlines()[0] + "\n")
    monkeypatch.setattr(ledger, "LEDGER", path)
    return path


@pytest.mark.process  # an installed peer is asked for its version
def test_an_entry_is_appended_on_request_and_compared_with_those_before(path, monkeypatch, capsys):
    names = path.read_text().strip().split(",")[3:]
    for cost in (2.0, 3.0):
        monkeypatch.setattr(ledger, "measured", lambda cost=cost: dict.fromkeys(names, cost))
        assert ledger.main(["--append"]) == 0
    assert capsys.readouterr().out.count("50% more") == len(names)
    assert ledger.main([]) == 0
    assert [float(line.split(",")[-1]) for line in path.read_text().splitlines()[1:]] == [2.0, 3.0]


class Steady(System):
    """Uses 2 ms of CPU for a step, on a clock of its own."""

    roles = property(lambda self: {})

    def __init__(self, clock):
        super().__init__("steady")
        self.clock = clock

    def start(self): ...

    def check(self): ...

    def close(self): ...

    def cpu_secs(self):
        return self.clock.steps * 0.002


class Clock:
    """A clock on which a step takes 5 ms, and a report comes each 50 steps."""

    def __init__(self):
        self.now, self.steps, self.systems = 0.0, 0, []

    def monotonic(self):
        return self.now

    def thread_time(self):
        return self.now

    def sleep(self, secs):
        for _ in range(round(secs / 0.005)):
            self.now += 0.005
            self.steps += 1
            if self.steps % 50 == 0:
                self.systems[0].progress.add(ledger.CHIEF, self.steps, self.now)


def test_the_cost_of_a_step_is_that_between_reports(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(ledger, "time", clock)
    clock.systems.append(Steady(clock))
    assert ledger._step_secs(clock.systems[0]) == pytest.approx([0.002] * ledger.NUM_SPANS, rel=1e-6)


def test_the_header_names_what_is_measured():
    header = ledger.LEDGER.read_text().splitlines()[0].split(",")
    assert header == ["date", "commit", "processor", *(case.key for case in ledger.CASES), ledger.ALONE]
