"""Trainings on three hosts count every update and every record exactly once, whatever happens to a host."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import wait_for
from tests.hosts.conftest import PORT, PSFLOW, DaskOnHosts, cut_off
from tests.hosts.rig import ROOT, Rig, RigHost
from tests.hosts.switch import Link
from tests.hosts.training import END, miscounted
from tests.limits import HANG_SECS
from tests.s3_server import S3Server

LONG = 5000
"""Steps of a training that goes on for half a minute."""
SHORT = 500
"""Steps of a training whose steps are long."""
RETIRE = """
import sys
from distributed import Client

with Client(sys.argv[1]) as client:
    workers = client.scheduler_info(n_workers=-1)["workers"]
    client.retire_workers([slot for slot in workers if f"//{sys.argv[2]}:" in slot])
"""
LINKS = {"20 ms": Link(delay_secs=0.02), "1 % loss": Link(loss=0.01), "100 Mbit": Link(bits_per_sec=1e8)}

pytestmark = [pytest.mark.piece(number=11), pytest.mark.measured]


@pytest.mark.parametrize("num_ps", [1, 2])
def test_by_the_address_of_a_dask_scheduler(on_hosts: DaskOnHosts, num_ps: int) -> None:
    for host in on_hosts.rig.hosts:
        on_hosts.start_workers(host)
    on_hosts.finish(on_hosts.train(num_ps=num_ps, num_workers=2))
    hosts = {line.split()[-1] for line in on_hosts.log.splitlines() if line.startswith("started")}
    assert hosts == {host.name for host in on_hosts.rig.hosts}


@pytest.mark.parametrize("rig", LINKS.values(), indirect=True, ids=LINKS)
def test_over_links_that_are_long_lose_frames_or_are_slow(on_hosts: DaskOnHosts) -> None:
    for host in on_hosts.rig.hosts:
        on_hosts.start_workers(host)
    on_hosts.finish(on_hosts.train(num_ps=2, num_workers=2, max_steps=SHORT), max_steps=SHORT)


@pytest.mark.parametrize("by_coordinator", [False, True])
def test_by_tf_config_on_each_host(rig: Rig, tmp_path: Path, by_coordinator: bool) -> None:
    first, second, third = rig.hosts
    cluster = {
        "ps": [f"{first.address}:2222", f"{second.address}:2222"],
        "chief": [f"{second.address}:2223"],
        "worker": [f"{third.address}:2222", f"{first.address}:2223"],
        "evaluator": [f"{third.address}:2223"],
    }
    places = {"ps": (first, second), "chief": (second,), "worker": (third, first), "evaluator": (third,)}
    common = {"cluster": cluster, "model_dir": str(tmp_path / "model")}
    options = json.dumps({"model_dir": common["model_dir"], "by_coordinator": by_coordinator})
    words = (sys.executable, "-m", "tests.hosts.training", options)
    roles = {}
    for kind, hosts in places.items():
        for index, host in enumerate(hosts):
            config = json.dumps({**common, "task": {"type": kind, "index": index}})
            name = f"{kind}-{index}.log"
            roles[name] = host.start(*words, directory=tmp_path, log=name, TF_CONFIG=config)
    codes = {name: role.wait(HANG_SECS) for name, role in roles.items()}
    assert codes == dict.fromkeys(roles, 0), (tmp_path / "chief-0.log").read_text()
    assert miscounted(tmp_path / "model") == []
    if by_coordinator:
        assert "worker 1 of 3 workers" in (tmp_path / "worker-1.log").read_text()


@pytest.mark.parametrize("secs", [5.0, 20.0])
def test_the_host_of_workers_is_cut_off(on_hosts: DaskOnHosts, secs: float) -> None:
    first, second, third = on_hosts.rig.hosts
    on_hosts.start_workers(first)  # these three are of the ps, the chief and the evaluator
    on_hosts.start_workers(third, 1)
    training = on_hosts.train(num_workers=2, min_workers=0, max_steps=LONG)
    on_hosts.await_checkpoints(training, 1)
    on_hosts.start_workers(second)
    wait_for(lambda: "started worker-1" in on_hosts.log, HANG_SECS, "a worker on the host that joins late")
    assert on_hosts.host_of("worker-0") is on_hosts.host_of("worker-1") is second
    cut_off(on_hosts.rig, second, secs)
    assert training.poll() is None, on_hosts.log
    on_hosts.finish(training, max_steps=LONG)


def test_the_host_of_a_ps_is_cut_off(on_hosts: DaskOnHosts) -> None:
    for host in on_hosts.rig.hosts[1:]:
        on_hosts.start_workers(host)
    training = on_hosts.train(num_workers=1)
    on_hosts.await_checkpoints(training)
    cut_off(on_hosts.rig, on_hosts.host_of("ps-0"), 5.0)
    assert training.poll() is None, on_hosts.log
    on_hosts.finish(training)


def test_a_host_is_killed_and_another_one_has_room(on_hosts: DaskOnHosts) -> None:
    for host in on_hosts.rig.hosts[1:]:
        on_hosts.start_workers(host, 4)
    training = on_hosts.train(num_workers=1)
    on_hosts.await_checkpoints(training)
    lost = on_hosts.host_of("ps-0")
    lost.kill()
    on_hosts.finish(training)
    assert on_hosts.host_of("ps-0") is not lost


def test_hosts_that_join_late_give_workers_which_leave_in_order(on_hosts: DaskOnHosts, tmp_path: Path) -> None:
    first, second, third = on_hosts.rig.hosts

    def scale(host: RigHost, number: int) -> None:
        scaled = host.start(PSFLOW, "scale", str(on_hosts.model_dir), str(number), directory=tmp_path, log="scale.log")
        assert scaled.wait(HANG_SECS) == 0, (tmp_path / "scale.log").read_text()

    def starts(role: str) -> int:
        assert training.poll() is None, on_hosts.log
        return on_hosts.log.count(f"started {role} on")

    on_hosts.start_workers(first, 3)  # of the ps, the chief and the evaluator
    training = on_hosts.train(num_workers=4, min_workers=0, max_restarts=0, max_steps=None)
    on_hosts.await_checkpoints(training, 1)
    for host, role in ((second, "worker-1"), (third, "worker-3")):
        on_hosts.start_workers(host)
        wait_for(lambda role=role: starts(role), HANG_SECS, f"{role} on a host that joins late")
        assert on_hosts.host_of(role) is host
    scale(second, 1)  # from a host that does not run the job
    wait_for(lambda: "the job is scaled to 1 worker" in on_hosts.log, HANG_SECS, "the job to be scaled")
    scale(third, 4)
    wait_for(lambda: starts("worker-3") == 2, HANG_SECS, "worker-3 again")
    words = (sys.executable, "-c", RETIRE, on_hosts.address, second.address)
    assert first.start(*words, directory=tmp_path, log="retire.log").wait(HANG_SECS) == 0
    lost = [line for line in on_hosts.log.splitlines() if line.startswith("lost")]
    assert len(lost) == 2
    assert all(line.endswith("was closed") and second.address in line for line in lost)
    (on_hosts.model_dir / END).touch()
    on_hosts.finish(training, max_steps=None)


def test_with_a_model_dir_on_s3_a_host_is_killed(rig: Rig, tmp_path: Path) -> None:
    first, *others = rig.hosts
    s3, log = S3Server(PORT + 1, tmp_path, first.address), tmp_path / "s3.log"
    first.start(*s3.command, directory=tmp_path, log=log.name)
    wait_for(lambda: "ready" in log.read_text(), HANG_SECS, "S3")
    on_hosts = DaskOnHosts(rig, tmp_path, variables=s3.environment)
    on_hosts.start_scheduler()
    for host in others:
        on_hosts.start_workers(host, 4)
    training = on_hosts.train(model_dir="s3://bucket/model", num_workers=1)
    wait_for(lambda: on_hosts.log.count("saved ") >= 3 or training.poll() is not None, HANG_SECS, "checkpoints")
    lost = on_hosts.host_of("ps-0")
    lost.kill()
    assert training.wait(HANG_SECS) == 0, on_hosts.log
    assert "lost ps-0" in on_hosts.log
    assert on_hosts.host_of("ps-0") is not lost
    counted = on_hosts.train(model_dir="s3://bucket/model", is_over=True)  # here nobody reaches that S3
    assert counted.wait(HANG_SECS) == 0, on_hosts.log
    assert json.loads(on_hosts.log.splitlines()[-1]) == []


def test_another_psflow_on_a_host_is_refused_by_name(on_hosts: DaskOnHosts, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(ROOT / "psflow", other / "psflow", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "psflow" / "ps_runtime" / "errors.py").open("a") as module:
        module.write("\n# another commit\n")
    first, second, _ = on_hosts.rig.hosts
    on_hosts.start_workers(first)
    on_hosts.start_workers(second, PYTHONPATH=f"{other}:{ROOT}")
    training = on_hosts.train(num_workers=1)
    assert training.wait(HANG_SECS) != 0
    assert re.search(r"the Dask worker \S+ on host2 has psflow .+; install the same on all hosts", on_hosts.log)


def test_roles_run_where_the_plan_places_them(on_hosts: DaskOnHosts, tmp_path: Path) -> None:
    hosts = on_hosts.rig.hosts
    for host in hosts:
        on_hosts.start_workers(host)
    on_hosts.await_workers()
    words = [str(ROOT / "conf" / "digits.yaml"), f"cluster.address={on_hosts.address}", "cluster.ps=2", "--json"]
    plan = hosts[0].start(PSFLOW, "plan", *words, "cluster.workers=2", directory=tmp_path, log="plan.log")
    assert plan.wait(HANG_SECS) == 0, (tmp_path / "plan.log").read_text()
    planned = json.loads((tmp_path / "plan.log").read_text().splitlines()[-1])["hosts"]
    on_hosts.finish(on_hosts.train(num_ps=2, num_workers=2))
    roles = [role for there in planned.values() for role in there]
    assert sorted(roles) == ["chief-0", "evaluator-0", "ps-0", "ps-1", "worker-0", "worker-1"]
    assert {role: on_hosts.host_of(role).address for role in roles} == {
        role: address for address, there in planned.items() for role in there
    }
    assert on_hosts.host_of("ps-0") is not on_hosts.host_of("ps-1")
