import math
from contextlib import closing

import pytest

from benchmarks import rounds
from benchmarks.cases import Case
from benchmarks.rounds import step_rate
from benchmarks.systems.product import ProductSystem
from benchmarks.workloads import Workload
from psflow.ps_runtime.errors import RoleFailedError
from tests.limits import HANG_SECS

pytestmark = pytest.mark.process


WORKLOAD = Workload("dense", report_steps=2, slice_secs=0.2, params={"num_parameters": 1000})


@pytest.mark.cluster
def test_psflow_is_held_let_go_measured_and_ended(monkeypatch):
    monkeypatch.setattr(rounds, "TIMEOUT_SECS", HANG_SECS)
    system = ProductSystem(WORKLOAD, Case.parse("async/shm/1ps/1w"))
    with closing(system):
        system.start()
        assert set(system.roles) == {"ps-0", "chief-0", "evaluator-0"}
        assert len(set(system.pids)) == 3
        found = step_rate(system, WORKLOAD.slice_secs)
        assert 0 < found.steps_per_sec < math.inf
        assert 0 < found.cpu_secs_per_step < math.inf


def test_a_replica_that_came_by_another_transport_is_told():
    system = ProductSystem(WORKLOAD, Case.parse("async/shm/1ps/1w"))
    system._reports = {"ps-0": {"transport": "tcp"}, "chief-0": {"transport": "unix"}}
    with pytest.raises(RoleFailedError, match="it used unix, the case is async/shm/1ps/1w"):
        system._check_transport()
