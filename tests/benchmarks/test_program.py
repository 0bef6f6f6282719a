"""Child processes as systems: real ones, as small as they can be."""

import os
import signal
import sys
import time
from contextlib import closing

import psutil
import pytest

from benchmarks.limit import limit_system
from benchmarks.processes import clock_secs, cpu_secs, pss_bytes
from benchmarks.systems.program import Command, ProgramSystem
from benchmarks.workloads import Workload
from psflow.ps_runtime.errors import RoleFailedError, WaitTimeoutError
from tests.limits import HANG_SECS

pytestmark = pytest.mark.process

COUNT = """
import json, time
print(json.dumps({"first_step": 1.5}), flush=True)
for step in range(10**9):
    print(json.dumps({"step": step, "time": time.monotonic()}), flush=True)
    time.sleep(0.001)
"""


def program(text, counting=("one",), **settings):
    command = Command([sys.executable, "-S", "-c", text], {"SAYS": "hello"})
    return ProgramSystem("a program", lambda directory: {"one": command}, counting=counting, **settings)


def test_a_started_system_is_at_work_and_held_and_goes_on_when_it_is_let_go():
    with closing(program(COUNT, first_steps=["one"])) as system:
        system.start()
        [pid] = system.pids
        assert system.roles == {"one": pid}
        assert os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT).si_code == os.CLD_STOPPED
        assert system.events["one"] == [{"first_step": 1.5}]
        system.let_go()
        known = system.progress.num_reports("one")
        while system.progress.num_reports("one") < known + 3:
            system.check()
        while system.cpu_secs() == 0:
            system.check()
        system.hold()  # both clocks stand still
        assert clock_secs(pid) == pytest.approx(cpu_secs([pid]), abs=0.1)
        assert pss_bytes(pid) > 2**20
    assert not psutil.pid_exists(pid)


def test_a_process_that_ends_is_told_with_its_last_words():
    text = "import os, sys; sys.exit(os.environ['SAYS'] + ' and good-bye')"
    says = "one of a program failed: it ended with exit code 1\n    hello and good-bye"
    with closing(program(text)) as system, pytest.raises(RoleFailedError, match=says):
        system.start()


def test_a_process_that_never_works_is_not_waited_for_for_ever():
    says = "^a program did not start training within 0.01 s$"
    with (
        closing(program("import signal; signal.pause()", timeout_secs=0.01)) as system,
        pytest.raises(WaitTimeoutError, match=says),
    ):
        system.start()


def test_an_event_is_found_even_if_the_process_has_ended_since():
    with closing(program("print('{\"ended\": 1.0}')", counting=())) as system:
        system.launch()
        system.await_event("one", "ended", HANG_SECS)
        assert system.events["one"] == [{"ended": 1.0}]


def test_a_process_that_ends_without_the_event_is_an_error():
    with closing(program("pass", counting=())) as system:
        system.launch()
        with pytest.raises(RoleFailedError, match="it ended with exit code 0"):
            system.await_event("one", "ended", HANG_SECS)


def test_ctrl_c_is_not_for_the_processes_of_a_system():
    with closing(program("import signal; signal.pause()", counting=())) as system:
        system.launch()
        assert os.getpgid(system.pids[0]) != os.getpgid(0)


def test_the_limit_is_a_loop_for_each_replica_but_not_more_than_there_are_cores():
    workload = Workload("dense", 10, 1.0, {"num_parameters": 5})
    cores = len(os.sched_getaffinity(0))
    assert len(limit_system(workload, 1).commands(None)) == 1
    assert len(limit_system(workload, 100).commands(None)) == cores


def test_the_limit_copies_as_the_roles_of_a_cluster_do():
    (command,) = limit_system(Workload("dense", 10, 1.0, {"num_parameters": 5}), 1).commands(None).values()
    assert "non_temporal_threshold" in command.environment["GLIBC_TUNABLES"]


def test_the_limit_reports_how_far_it_is():
    with closing(limit_system(Workload("dense", 10, 1.0, {"num_parameters": 5}), 1)) as system:
        system.start()
        steps, times = zip(*system.progress.reports("loop-0"), strict=True)
    assert steps[:3] == (10, 20, 30)
    assert list(times) == sorted(times)
    assert times[0] <= time.monotonic()


def test_processes_are_gone_when_their_system_is_closed_while_held():
    with closing(program(COUNT)) as system:
        system.start()
        [pid] = system.pids
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
