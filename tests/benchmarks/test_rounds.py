import pytest

from benchmarks import rounds
from benchmarks.rounds import order_of_round, samples_of, step_rate
from benchmarks.systems.base import Progress, System
from psflow.ps_runtime.errors import RoleFailedError, WaitTimeoutError


class Clock:
    def __init__(self):
        self.now = 0.0
        self.working = []

    def monotonic(self):
        return self.now

    def sleep(self, secs):
        for _ in range(round(secs * 100)):
            self.now += 0.01
            for system in self.working:
                system.work()


class Fake(System):
    """Makes a step each hundredth of a second, and uses `cpu` seconds of CPU for it."""

    roles = property(lambda self: {})

    def __init__(self, name, clock, cpu=0.005, log=None, reports=1):
        super().__init__(name)
        self.clock, self.cpu, self.log, self.reports = clock, cpu, [] if log is None else log, reports
        self.steps, self.most_at_work, self.failure = 0, 0, None

    def start(self):
        self.log.append(f"start {self.name}")

    def close(self):
        self.log.append(f"close {self.name}")

    def check(self):
        if self.failure:
            raise self.failure

    def let_go(self):
        self.log.append(self.name)
        self.clock.working.append(self)

    def hold(self):
        if self in self.clock.working:
            self.clock.working.remove(self)

    def cpu_secs(self):
        return self.steps * self.cpu

    def work(self):
        self.steps += 1
        self.most_at_work = max(self.most_at_work, len(self.clock.working))
        if self.reports and self.steps % self.reports == 0:
            self.progress.add(self.name, self.steps, self.clock.now)


def alternate(systems, num_rounds, slice_secs):
    return rounds.alternate(systems, num_rounds, lambda system: step_rate(system, slice_secs))


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(rounds, "time", clock)
    return clock


def test_a_slice_has_the_rate_and_the_cpu_of_its_system(clock):
    slices = alternate([Fake("a", clock, cpu=0.004)], num_rounds=3, slice_secs=1.0)
    for slice_ in slices["a"]:
        assert slice_.steps_per_sec == pytest.approx(100)
        assert slice_.cpu_secs_per_step == pytest.approx(0.004)
    assert len(slices["a"]) == 3


def test_only_one_system_works_at_a_time(clock):
    systems = [Fake("a", clock), Fake("b", clock)]
    alternate(systems, num_rounds=2, slice_secs=0.5)
    assert {system.most_at_work for system in systems} == {1}


def test_each_round_begins_with_another_system(clock):
    log = []
    alternate([Fake(name, clock, log=log) for name in "abc"], num_rounds=4, slice_secs=0.1)
    assert log == [
        *("start a", "start b", "start c"),
        *("a", "b", "c", "b", "c", "a", "c", "a", "b", "a", "b", "c"),
        *("close c", "close b", "close a"),
    ]


def test_the_order_of_a_round_is_a_rotation():
    assert order_of_round(["a", "b", "c"], 7) == ["b", "c", "a"]


def test_a_system_that_says_nothing_is_named(clock):
    with pytest.raises(WaitTimeoutError, match=r"^silent did not report its progress twice within 60 s$"):
        alternate([Fake("silent", clock, reports=0)], num_rounds=1, slice_secs=1.0)


def test_a_slow_system_gets_the_time_to_report_twice(clock):
    [slice_] = alternate([Fake("slow", clock, reports=150)], num_rounds=1, slice_secs=1.0)["slow"]
    assert slice_.steps_per_sec == pytest.approx(100)


def test_a_system_that_has_failed_ends_all(clock):
    log = []
    systems = [Fake("a", clock, log=log), Fake("b", clock, log=log)]
    systems[0].failure = RoleFailedError("a", "it is gone")
    with pytest.raises(RoleFailedError, match="it is gone"):
        alternate(systems, num_rounds=1, slice_secs=0.1)
    assert log[-2:] == ["close b", "close a"]
    assert clock.working == []


def test_samples_are_slices_in_their_order(clock):
    slices = alternate([Fake("a", clock)], num_rounds=2, slice_secs=0.5)
    assert list(samples_of(slices, "a").values) == [s.steps_per_sec for s in slices["a"]]
    assert samples_of(slices, "") is None


def progress(**sources):
    progress = Progress()
    for source, reports in sources.items():
        for step, time in reports:
            progress.add(source, step, time)
    return progress


def test_a_rate_is_that_between_the_first_and_the_last_report_of_a_window():
    reports = [(0, 0.0), (100, 1.0), (300, 2.0), (400, 2.5), (900, 9.0)]
    assert progress(chief=reports).rate(0.9, 3.0) == pytest.approx(200)


def test_sources_that_count_for_themselves_add_up():
    assert progress(a=[(0, 0.0), (10, 1.0)], b=[(0, 0.0), (30, 1.0)]).rate(0.0, 1.0) == pytest.approx(40)


def test_without_two_reports_there_is_no_rate():
    assert progress(a=[(0, 0.0), (10, 1.0)], b=[(0, 0.0), (30, 2.0)]).rate(0.0, 1.5) is None
    assert Progress().rate(0.0, 1.0) is None
