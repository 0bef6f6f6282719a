"""A process of a cluster as programs with flags name it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psflow import ClusterSpec, RunConfig, Server
from psflow.ps_runtime.errors import ArgumentTypeError, ConfigError, PsflowError, UsageError
from psflow.ps_runtime.estimator import manual_cluster as server_module

HOSTS = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
PLACES = [
    (HOSTS, "ps", 0, "ps-0"),
    (HOSTS, "worker", 0, "chief-0"),
    (HOSTS, "worker", 1, "worker-0"),
    (ClusterSpec({"ps": ("a:1",), "worker": ("b:1", "c:1")}), "worker", 1, "worker-0"),
    ({"ps": ("a:1",), "worker": ("b:1",)}, "worker", 0, "chief-0"),
    ({**HOSTS, "chief": ["d:1"]}, "worker", 1, "worker-1"),
    (HOSTS, "evaluator", 0, "evaluator-0"),
]


@pytest.mark.parametrize(("cluster", "job_name", "task_index", "role"), PLACES)
def test_it_knows_its_place(cluster: Any, job_name: str, task_index: int, role: str) -> None:
    target = Server(cluster, job_name=job_name, task_index=task_index).target
    assert str(target.role) == role
    assert RunConfig("model", cluster=target).cluster == target


def test_a_cluster_spec_of_a_configuration_names_the_same_place() -> None:
    config = RunConfig("model", cluster=Server(HOSTS, "worker", 1).target)
    again = Server(config.cluster_spec, config.task_type, config.task_id)
    assert again.target == config.cluster


WRONG = [
    ((HOSTS, "ps", 1), ConfigError, "Server: task_index should be 0, as cluster.ps has 1 address, got 1"),
    ((HOSTS, "wroker", 0), ConfigError, "Server: job_name should be one of .*, got 'wroker'; did you mean 'worker'"),
    ((HOSTS, "", 0), ConfigError, "Server: job_name should be one of .*, got ''"),
    ((HOSTS, "worker", "1"), ConfigError, "Server: task_index should be .*, got '1'"),
    (({"ps": "a:1"}, "ps", 0), ConfigError, "Server: cluster.ps should be a list of addresses, got 'a:1'"),
    (({}, "ps", 0), ConfigError, "Server: job_name should be 'worker' where there is no cluster, got 'ps'; give"),
    (({}, "worker", 0), ConfigError, "Server: cluster should have addresses, got none"),
    (
        ({"ps": ["a:1"]}, "ps", 0),
        ConfigError,
        "Server: cluster should have one chief, or workers of which the first is",
    ),
    (({None: ["a:1"], **HOSTS}, "ps", 0), ConfigError, "Server: cluster.None: expected one of .*evaluator"),
    (({1: ["a:1"]}, "ps", 0), ConfigError, "Server: cluster.1: expected one of .*evaluator"),
    (("a:1", "ps", 0), ArgumentTypeError, "Server: cluster should be a ClusterSpec, or a mapping .*, got str 'a:1'"),
]


@pytest.mark.parametrize(("given", "kind", "words"), WRONG)
def test_what_is_no_place_is_refused(given: Any, kind: type[PsflowError], words: str) -> None:
    with pytest.raises(kind, match=f"^{words}"):
        Server(*given)


ALONE = [
    (HOSTS, "worker", 0, "Server.join: the chief coordinates the job and does not join; call train_and_evaluate, or"),
    (HOSTS, "client", 0, "this process is a client, which is not a role of a job; start each role of its cluster"),
    ({"worker": ["b:1", "c:1"]}, "worker", 1, "the cluster has no ps; add one, or leave the cluster out to train"),
]


@pytest.mark.parametrize(("cluster", "job_name", "task_index", "words"), ALONE)
def test_who_joins_nobody(cluster: Any, job_name: str, task_index: int, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^{words}"):
        Server(cluster, job_name, task_index).join(tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "a str or path, got int 3"),
        (b"x", "a str or path, got bytes b'x'"),
        ("", "that of the chief, got ''"),
    ],
)
def test_who_joins_no_directory_is_refused(given: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(server_module, "serve_manual_role", lambda *given: served.append(given))
    with pytest.raises(UsageError, match=f"^Server.join: model_dir should be {words}$") as caught:
        Server(HOSTS, "ps", 0).join(given)
    assert isinstance(caught.value, ArgumentTypeError) == (given != "")
    assert served == []


def test_it_looks_for_the_chief_in_the_directory_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(server_module, "serve_manual_role", lambda *given: served.append(given))
    monkeypatch.chdir(tmp_path)
    server = Server(HOSTS, "ps", 0)
    server.join("runs")
    [(target, model_dir, timeout_secs, _)] = served
    assert (target, model_dir) == (server.target, str(tmp_path / "runs"))
    assert 30.0 < timeout_secs <= 40.0
