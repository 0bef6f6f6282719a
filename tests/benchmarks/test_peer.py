import json
import os
import sys

import pytest

from benchmarks import peer
from benchmarks.cases import Case
from benchmarks.peer import Peer, environments_of, find_peer, peer_system
from benchmarks.workloads import Workload
from psflow.ps_runtime.errors import UsageError


@pytest.fixture(autouse=True)
def _nothing_made(monkeypatch, tmp_path):
    monkeypatch.setattr(peer, "MADE_BY_MAKE", tmp_path / "none")
    monkeypatch.delenv("PSFLOW_BENCH_PEER_PYTHON", raising=False)
    find_peer.cache_clear()
    yield
    find_peer.cache_clear()


def interpreter(path, says):
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)
    return str(path)


def test_without_a_peer_there_is_none():
    assert find_peer() is None


@pytest.mark.process
def test_a_peer_is_found_by_name(monkeypatch, tmp_path):
    python = interpreter(tmp_path / "python", "2.15.0")
    monkeypatch.setenv("PSFLOW_BENCH_PEER_PYTHON", python)
    assert find_peer() == Peer(python, "2.15.0")


@pytest.mark.process
def test_a_peer_is_found_where_make_puts_it(monkeypatch, tmp_path):
    python = tmp_path / "python"
    monkeypatch.setattr(peer, "MADE_BY_MAKE", python)
    assert find_peer.__wrapped__() is None
    interpreter(python, "2.15.0")
    assert find_peer.__wrapped__() == Peer(str(python), "2.15.0")


@pytest.mark.process
@pytest.mark.parametrize("has", ["", "2.16.1"])
def test_an_interpreter_without_the_estimator_is_refused(monkeypatch, tmp_path, has):
    python = interpreter(tmp_path / "python", has)
    monkeypatch.setenv("PSFLOW_BENCH_PEER_PYTHON", python)
    with pytest.raises(
        UsageError, match=f"names {python}, which should have TensorFlow Estimator 2.15, but has {has or 'none'}"
    ):
        find_peer()


@pytest.mark.process
def test_an_interpreter_that_is_not_there_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PSFLOW_BENCH_PEER_PYTHON", str(tmp_path / "python"))
    with pytest.raises(UsageError, match="No such file"):
        find_peer()


def test_each_role_is_told_the_whole_cluster_and_who_it_is():
    found = {role: json.loads(environment["TF_CONFIG"]) for role, environment in environments_of(2, 3).items()}
    assert list(found) == ["ps-0", "ps-1", "chief-0", "worker-0", "worker-1"]
    [cluster] = {json.dumps(config["cluster"]) for config in found.values()}
    sizes = {role: len(addresses) for role, addresses in json.loads(cluster).items()}
    assert sizes == {"ps": 2, "chief": 1, "worker": 2}
    addresses = [address for group in json.loads(cluster).values() for address in group]
    assert len(set(addresses)) == 5
    assert found["worker-1"]["task"] == {"type": "worker", "index": 1}


def test_one_replica_has_no_worker():
    assert list(environments_of(1, 1)) == ["ps-0", "chief-0"]


@pytest.mark.parametrize(("key", "flags"), [("async/shm/1ps/2w", []), ("sync/shm/1ps/3w", ["--sync-replicas", "3"])])
def test_the_peer_trains_as_the_case_says(key, flags, tmp_path):
    system = peer_system(
        Peer("python3.11", "2.15.0"), Workload("dense", 10, 1.0, {"num_parameters": 5}), Case.parse(key)
    )
    commands = system.commands(tmp_path)
    for command in commands.values():
        assert command.arguments[0] == "python3.11"
        assert command.arguments[2] == "dense"
        assert list(command.arguments[-len(flags) :] if flags else []) == flags
        assert '{"num_parameters": 5}' in command.arguments
    assert os.listdir(tmp_path) == ["records.npz"]


def test_the_program_of_the_peer_imports_nothing_of_psflow():
    text = peer.PROGRAM.read_text()
    imported = [line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))]
    assert set(imported) - set(sys.stdlib_module_names) == {"numpy", "tensorflow"}
