"""TF_CONFIG and the flags: the forms of a cluster, its facts in a RunConfig, and the messages of refusals."""

from __future__ import annotations

import json
import os
import re

import pytest

from psflow import (
    Estimator,
    RunConfig,
)
from psflow.ps_runtime.config.environment import environment
from psflow.ps_runtime.errors import ConfigError, UsageError
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses, ClusterTask, TaskType, parse_role_flags
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.ps_runtime.specs.tf_config import TfConfig, parse_tf_config

CLUSTER = {"chief": ["c:1"], "worker": ["w:1", "w:2"], "ps": ["p:1", "p:2"]}
MASTER = {"master": ["c:1"], "worker": ["w:1"], "ps": ["p:1"]}
NOT_ALONE = "this process is worker 1 of a cluster whose chief is at c:1"


def text_of(cluster, kind="chief", index=0, **more):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}, **more})


def config_of(text, **settings):
    with environment({"TF_CONFIG": text}):
        return RunConfig(**settings)


# task_type, task_id, is_chief, num_ps_replicas, num_worker_replicas, global_id_in_cluster; as TensorFlow 2.15 has them
FACTS = [
    (CLUSTER, ("chief", 0, True, 2, 3, 0)),
    (CLUSTER, ("worker", 0, False, 2, 3, 1)),
    (CLUSTER, ("worker", 1, False, 2, 3, 2)),
    (CLUSTER, ("ps", 0, False, 2, 3, 3)),
    (CLUSTER, ("ps", 1, False, 2, 3, 4)),
    (MASTER, ("master", 0, True, 1, 2, 0)),
    (MASTER, ("worker", 0, False, 1, 2, 1)),
    (MASTER, ("ps", 0, False, 1, 2, 2)),
    ({"chief": ["c:1"]}, ("chief", 0, True, 0, 1, 0)),
]


def facts_of(config):
    return (
        config.task_type,
        config.task_id,
        config.is_chief,
        config.num_ps_replicas,
        config.num_worker_replicas,
        config.global_id_in_cluster,
    )


@pytest.mark.parametrize(("cluster", "facts"), FACTS)
def test_what_a_run_config_tells(cluster, facts):
    config = config_of(text_of(cluster, *facts[:2]))
    assert facts_of(config) == facts
    assert config.cluster_spec.as_dict() == cluster
    assert [config.cluster_spec.num_tasks(kind) for kind in cluster] == [len(names) for names in cluster.values()]


@pytest.mark.parametrize("cluster", [CLUSTER, {**CLUSTER, "evaluator": ["e:1"]}])
def test_an_evaluator_sees_an_empty_cluster(cluster):
    config = config_of(text_of(cluster, "evaluator"))
    assert facts_of(config) == ("evaluator", 0, False, 0, 0, None)
    assert not config.cluster_spec
    assert str(config.cluster.role) == "evaluator-0"


@pytest.mark.parametrize("kind", ["chief", "worker", "ps", "evaluator"])
def test_the_evaluator_may_stand_in_the_cluster_or_outside(kind):
    outside, inside = (parse_tf_config(text_of(one, kind)).task for one in (CLUSTER, {**CLUSTER, "evaluator": ["e:1"]}))
    addresses = ("c:1", ("w:1", "w:2"), ("p:1", "p:2"))
    assert outside == ClusterTask(ClusterAddresses(*addresses), TaskType(kind), 0)
    assert inside == ClusterTask(ClusterAddresses(*addresses, evaluator="e:1"), TaskType(kind), 0)
    assert inside.facts == outside.facts


@pytest.mark.parametrize("text", [None, "", "{}", '{"cluster": {}}', '{"task": {"type": "worker", "index": 0}}'])
def test_no_cluster_is_this_process_alone(text, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = RunConfig() if text is None else config_of(text)
    assert facts_of(config) == ("worker", 0, True, 0, 1, 0)
    assert config.cluster is None


@pytest.mark.parametrize(("index", "role", "facts"), [(0, "chief-0", ("chief", 0)), (1, "worker-0", ("worker", 0))])
def test_without_a_chief_worker_0_is_the_chief(index, role, facts):
    task = parse_tf_config(text_of({"worker": ["w:1", "w:2", "w:3"], "ps": ["p:1"]}, "worker", index)).task
    assert task.cluster == ClusterAddresses("w:1", ("w:2", "w:3"), ("p:1",))
    assert (str(task.role), task.facts.task_type, task.facts.task_id) == (role, *facts)
    assert task.facts.num_worker_replicas == 3


def test_a_ps_keeps_its_index_where_worker_0_is_the_chief():
    task = parse_tf_config(text_of({"worker": ["w:1"], "ps": ["p:1", "p:2"]}, "ps", 1)).task
    assert (str(task.role), task.facts.global_id_in_cluster) == ("ps-1", 2)


def test_a_list_of_no_workers_is_none():
    assert parse_tf_config(text_of({"chief": ["c:1"], "worker": [], "ps": ["p:1"]})).task.cluster.workers == ()


def test_a_master_is_the_chief_and_evaluates():
    task = parse_tf_config(text_of(MASTER, "master")).task
    assert task.cluster == ClusterAddresses("c:1", ("w:1",), ("p:1",), chief_evaluates=True)
    roles = {name: list(map(str, roles)) for name, roles in task.cluster.processes(evaluator=True).items()}
    assert roles == {"ps-0": ["ps-0"], "chief-0": ["chief-0", "evaluator-0"], "worker-0": ["worker-0"]}
    assert list(task.cluster.processes(evaluator=False).values()).count((RoleId(Role.CHIEF, 0),)) == 1


def test_without_a_master_each_role_is_a_process():
    cluster = parse_tf_config(text_of({**CLUSTER, "evaluator": ["e:1"]})).task.cluster
    processes = cluster.processes(evaluator=True)
    assert list(processes) == ["ps-0", "ps-1", "chief-0", "worker-0", "worker-1", "evaluator-0"]
    assert [cluster.address_of(role) for (role,) in processes.values()] == ["p:1", "p:2", "c:1", "w:1", "w:2", "e:1"]
    assert "evaluator-0" not in cluster.processes(evaluator=False)


def test_addresses_of_an_evaluator():
    evaluator = RoleId(Role.EVALUATOR, 0)
    assert parse_tf_config(text_of(CLUSTER)).task.cluster.address_of(evaluator) is None
    assert parse_tf_config(text_of(MASTER, "master")).task.cluster.address_of(evaluator) == "c:1"


@pytest.mark.parametrize("task", [{"type": "client"}, {"type": "client", "index": 0}])
def test_a_client_is_no_role(task):
    config = config_of(json.dumps({"cluster": CLUSTER, "task": task}))
    assert config.cluster.role is None
    assert facts_of(config) == ("client", 0, False, 2, 3, None)
    assert config.cluster_spec.as_dict() == CLUSTER


@pytest.mark.parametrize(
    "address",
    ["a:1", "a-b.c_d:65535", "10.0.0.1:2222", "[::1]:2222", "localhost:1", "[fe80::1%1]:1", f"{'a' * 63}.b:1"],
)
def test_an_address_is_a_host_and_a_port(address):
    assert parse_tf_config(text_of({"chief": [address]})).task.cluster.chief == address


@pytest.mark.parametrize("cluster", [CLUSTER, MASTER, {**CLUSTER, "evaluator": ["e:1"]}, {"chief": ["c:1"]}])
def test_a_task_is_what_its_text_says(cluster):
    for kind, addresses in cluster.items():
        for index in range(len(addresses)):
            task = parse_tf_config(text_of(cluster, kind, index)).task
            assert parse_tf_config(task.to_json()) == TfConfig(task)


def test_what_platforms_add_says_nothing_of_roles():
    task = {"type": "chief", "index": 0, "trial": "1", "cloud": "x"}
    more = {"job": {}, "service": {}, "rpc_layer": "grpc", "environment": "cloud"}
    assert parse_tf_config(json.dumps({"cluster": CLUSTER, "task": task, **more})) == parse_tf_config(text_of(CLUSTER))


TASK = '"task": {"type": "chief", "index": 0}'
REFUSED = [
    ("{", "TF_CONFIG should be a JSON object, got '{': Expecting property name enclosed in double quotes"),
    ("x" * 70, f"TF_CONFIG should be a JSON object, got '{'x' * 60}...': Expecting value"),
    ("9" * 5000, f"TF_CONFIG should be a JSON object, got '{'9' * 60}...': Exceeds the limit"),
    ("[]", "TF_CONFIG should be a JSON object, got '[]'"),
    ("[" * 9999, "TF_CONFIG should be a JSON object, got one nested too deeply: '[[["),
    ('{"cluster": []}', "TF_CONFIG: cluster should be an object, got []"),
    (text_of([CLUSTER], "ps"), "TF_CONFIG: cluster should be an object, got [{"),
    ('{"cluster": null}', "TF_CONFIG: cluster should be an object, got None"),
    ('{"task": 3}', "TF_CONFIG: task should be an object, got 3"),
    ('{"clutser": {}}', "TF_CONFIG: clutser: expected one of cluster, task, model_dir, environment; did you mean"),
    (
        text_of(CLUSTER, session_master="grpc://a:1"),
        "TF_CONFIG: session_master: expected one of cluster, task, model_dir, environment; leave out other",
    ),
    (text_of(CLUSTER, model_dir=""), "TF_CONFIG: model_dir should be a text that is not empty, got ''"),
    (text_of(CLUSTER, environment=3), "TF_CONFIG: environment should be a text that is not empty, got 3"),
    ('{"task": {"type": "ps"}}', "TF_CONFIG: task.type should be 'worker' where there is no cluster, got 'ps'"),
    ('{"task": {"index": 1}}', "TF_CONFIG: task.index should be 0 where there is no cluster, got 1; give cluster"),
    ('{"task": {"index": false}}', "TF_CONFIG: task.index should be 0 where there is no cluster, got False"),
    ('{"cluster": {"chief": ["c:1"], "chief": ["d:1"]}}', "TF_CONFIG: 'chief' occurs twice in one object"),
    (
        text_of({"chef": ["c:1"]}),
        "TF_CONFIG: cluster.chef: expected one of chief, master, worker, ps, evaluator; did you mean 'chief'?",
    ),
    (text_of({"chief": "c:1"}), "TF_CONFIG: cluster.chief should be a list of addresses, got 'c:1'"),
    (text_of({"chief": {"0": "c:1"}}), "TF_CONFIG: cluster.chief should be a list of addresses, got {'0': 'c:1'}"),
    (
        text_of({"chief": ["c:1", "d:1"]}),
        "TF_CONFIG: cluster.chief should have one address, got 2: c:1, d:1",
    ),
    (
        text_of({"chief": ["c:1"], "evaluator": ["e:1", "e:2"]}),
        "TF_CONFIG: cluster.evaluator should have one address, got 2: e:1, e:2",
    ),
    (text_of({"chief": [], "ps": ["p:1"]}), "TF_CONFIG: cluster.chief should have an address, got an empty list"),
    (
        text_of({**CLUSTER, "ps": []}),
        "TF_CONFIG: cluster.ps should have an address, got an empty list; leave it out if there is no ps",
    ),
    (
        text_of({"worker": [], "ps": ["p:1"]}),
        "TF_CONFIG: cluster should have one chief, or workers of which the first is the chief, got ps only",
    ),
    (
        text_of({"worker": []}),
        "TF_CONFIG: cluster should have one chief, or workers of which the first is the chief, got no address at all",
    ),
    (
        text_of({"chief": ["c:1"], **MASTER, "master": ["m:1"]}),
        "TF_CONFIG: cluster has a master and a chief: a master is both; leave one of the two out",
    ),
    (
        text_of({**MASTER, "evaluator": ["e:1"]}, "master"),
        "TF_CONFIG: cluster has a master and an evaluator: a master is both; leave one of the two out",
    ),
    (
        text_of(MASTER, "evaluator"),
        "TF_CONFIG: task.type is evaluator, but cluster has a master, which evaluates itself: "
        "do not start an evaluator",
    ),
    (
        text_of({"chief": ["c"]}),
        "TF_CONFIG: cluster.chief[0] should be a host and a port, such as 'host:2222', got 'c'",
    ),
    (text_of({"chief": ["c:x"]}), "TF_CONFIG: cluster.chief[0] should be a host and a port"),
    (text_of({"chief": [":1"]}), "TF_CONFIG: cluster.chief[0] should be a host and a port"),
    (text_of({"chief": ["grpc://c:1"]}), "TF_CONFIG: cluster.chief[0] should be a host and a port"),
    (text_of({"chief": [7]}), "TF_CONFIG: cluster.chief[0] should be a host and a port, such as 'host:2222', got 7"),
    (text_of({"chief": ["c:0"]}), "TF_CONFIG: cluster.chief[0] should have a port from 1 to 65535, got 'c:0'"),
    (text_of({"chief": ["a..b:1"]}), "TF_CONFIG: cluster.chief[0] should be a host and a port"),
    (text_of({"chief": [f"{'a' * 64}.b:1"]}), "TF_CONFIG: cluster.chief[0] should be a host and a port"),
    (text_of({"chief": ["[a..b]:1"]}), "TF_CONFIG: cluster.chief[0] should be a host and a port"),
    (text_of({"chief": [f"c:{'1' * 5000}"]}), "TF_CONFIG: cluster.chief[0] should have a port from 1 to 65535, got"),
    (text_of({"chief": ["c:65536"]}), "TF_CONFIG: cluster.chief[0] should have a port from 1 to 65535, got 'c:65536'"),
    (
        text_of({**CLUSTER, "ps": ["p:1", "w:2"]}),
        "TF_CONFIG: cluster.ps[1] is 'w:2', as cluster.worker[1] is: each process needs an address of its own",
    ),
    (
        f'{{"cluster": {json.dumps(CLUSTER)}}}',
        "TF_CONFIG: task.type and task.index missing: give the type and the index of this process in cluster",
    ),
    (json.dumps({"cluster": CLUSTER, "task": {"type": "ps"}}), "TF_CONFIG: task.index missing: give the type"),
    (json.dumps({"cluster": CLUSTER, "task": {"index": 0}}), "TF_CONFIG: task.type missing: give the type"),
    (
        text_of(CLUSTER, "chef"),
        "TF_CONFIG: task.type should be one of chief, master, worker, ps, evaluator, client, got 'chef'; did you mean",
    ),
    (
        text_of(CLUSTER, "PS"),
        "TF_CONFIG: task.type should be one of chief, master, worker, ps, evaluator, client, got 'PS'; did you mean",
    ),
    (text_of(CLUSTER, 3), "TF_CONFIG: task.type should be one of chief, master, worker, ps, evaluator, client, got 3"),
    (
        text_of({"chief": ["c:1"]}, "worker"),
        "TF_CONFIG: task.type is worker, but cluster has chief only: the address of this process is missing",
    ),
    (
        text_of(CLUSTER, "master"),
        "TF_CONFIG: task.type is master, but cluster has chief, worker, ps only: the address of this process",
    ),
    (
        text_of(CLUSTER, "worker", 2),
        "TF_CONFIG: task.index should be from 0 to 1, as cluster.worker has 2 addresses, got 2",
    ),
    (text_of(CLUSTER, "chief", 1), "TF_CONFIG: task.index should be 0, as cluster.chief has 1 address, got 1"),
    (text_of(CLUSTER, "ps", -1), "TF_CONFIG: task.index should be from 0 to 1, as cluster.ps has 2 addresses, got -1"),
    (text_of(CLUSTER, "ps", "0"), "TF_CONFIG: task.index should be a whole number, got '0'"),
    (text_of(CLUSTER, "ps", 0.0), "TF_CONFIG: task.index should be a whole number, got 0.0"),
    (text_of(CLUSTER, "ps", True), "TF_CONFIG: task.index should be a whole number, got True"),
    (text_of(CLUSTER, "evaluator", 1), "TF_CONFIG: task.index should be 0, as there is one evaluator, got 1"),
    (text_of(CLUSTER, "client", 1), "TF_CONFIG: task.index should be 0, as there is one client, got 1"),
    (f'{{"cluster": {{"chief": ["c:1"]}}, {TASK[:-1]}, "inedx": 1}}}}', "TF_CONFIG: task.inedx: expected one of type"),
]


@pytest.mark.parametrize(("text", "fault"), REFUSED)
def test_what_is_refused(text, fault):
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}") as caught:
        config_of(text)
    assert (type(caught.value), len(caught.value.faults)) == (ConfigError, 1)


def test_all_faults_are_reported_together():
    with pytest.raises(ConfigError) as caught:
        parse_tf_config(json.dumps({"model_dir": 1, "cluster": {"chief": ["c"], "x": []}, "task": {"typ": 1}}))
    assert [fault.partition(" ")[2].partition(" ")[0].rstrip(":") for fault in caught.value.faults] == [
        "model_dir",
        "task.typ",
        "cluster.x",
        "cluster.chief[0]",
    ]


def test_the_form_of_a_task_is_checked_with_that_of_the_cluster():
    with pytest.raises(ConfigError) as caught:
        parse_tf_config(text_of({"chief": ["c"]}, "chef", "0"))
    assert [fault.split()[1] for fault in caught.value.faults] == ["cluster.chief[0]", "task.type", "task.index"]


def test_it_is_read_once(monkeypatch):
    config = config_of(text_of(CLUSTER, "worker", 1, model_dir="runs/a"))
    monkeypatch.setenv("TF_CONFIG", "{")
    copy = config.replace(tf_random_seed=1)
    assert (facts_of(copy), copy.model_dir, copy.cluster) == (facts_of(config), "runs/a", config.cluster)


def test_it_is_not_read_where_the_cluster_is_given(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    assert facts_of(RunConfig(cluster=None)) == ("worker", 0, True, 0, 1, 0)
    task = ClusterTask(ClusterAddresses("c:1", ps=("p:1",)), TaskType.PS, 0)
    assert facts_of(RunConfig(cluster=task)) == ("ps", 0, False, 1, 1, 1)


def test_a_cluster_cannot_be_replaced():
    with pytest.raises(UsageError, match=r"^RunConfig has no 'cluster'$"):
        RunConfig().replace(cluster=None)


def test_the_model_dir_is_that_of_the_caller_or_of_tf_config():
    text = text_of(CLUSTER, model_dir="runs/a")
    assert config_of(text).model_dir == config_of(text, model_dir="runs/a").model_dir == "runs/a"
    assert config_of('{"model_dir": "runs/a"}').model_dir == "runs/a"
    assert config_of(text_of(CLUSTER), model_dir="runs/b").model_dir == "runs/b"
    with pytest.raises(ValueError, match=r"^model_dir is 'runs/b', but TF_CONFIG has 'runs/a'; give only one$"):
        config_of(text, model_dir="runs/b")
    for same in ("runs/a/", "./runs/a", os.path.abspath("runs/a"), "file://" + os.path.abspath("runs/a")):
        assert config_of(text, model_dir=same).model_dir == same


HOSTS = ("p:1,p:2", "w:1, w:2,w:3")
PLACES = {
    ("worker", 0): "chief-0",
    ("worker", 1): "worker-0",
    ("worker", 2): "worker-1",
    ("ps", 0): "ps-0",
    ("ps", 1): "ps-1",
    ("evaluator", 0): "evaluator-0",
}


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize(("place", "role"), PLACES.items())
def test_flags_have_the_first_worker_be_the_chief(separator, place, role):
    task = parse_role_flags(*(hosts.replace(",", separator) for hosts in HOSTS), *place)
    assert task.cluster == ClusterAddresses("w:1", ("w:2", "w:3"), ("p:1", "p:2"))
    assert str(task.role) == role


REFUSED_FLAGS = [
    (
        ("p:1", "w:1", "chief", 0),
        "--job_name should be one of ps, worker, evaluator, got 'chief'; the chief is --job_name",
    ),
    (("p:1", "w:1", "master", 0), "--job_name should be one of ps, worker, evaluator, got 'master'; the chief is"),
    (
        ("p:1", "w:1", "wroker", 0),
        "--job_name should be one of ps, worker, evaluator, got 'wroker'; did you mean 'worker'?",
    ),
    (("p:1", "w:1", "worker", 1), "--task_index should be 0, as --worker_hosts has 1 address, got 1"),
    (("p:1,q:1", "w:1", "ps", 2), "--task_index should be from 0 to 1, as --ps_hosts has 2 addresses, got 2"),
    (("p:1", "w:1", "ps", -1), "--task_index should be 0, as --ps_hosts has 1 address, got -1"),
    (("p:1", "w:1", "evaluator", 1), "--task_index should be 0, as there is one evaluator, got 1"),
    (("p:1,", "w:1", "ps", 0), "--ps_hosts[1] should be a host and a port, such as 'host:2222', got ''"),
    (("p:1", "w:1;w", "ps", 0), "--worker_hosts[1] should be a host and a port, such as 'host:2222', got 'w'"),
    (
        ("p:1", "p:1", "ps", 0),
        "--worker_hosts[0] is 'p:1', as --ps_hosts[0] is: each process needs an address of its own",
    ),
]


@pytest.mark.parametrize(("flags", "fault"), REFUSED_FLAGS)
def test_flags_that_are_refused(flags, fault):
    with pytest.raises(ConfigError) as caught:
        parse_role_flags(*flags)
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].startswith(fault)


def no_model(features):
    raise AssertionError("it is refused before that")


def test_nothing_trains_alone_in_a_process_of_a_cluster(tmp_path):
    config = config_of(text_of(CLUSTER, "worker", 1), model_dir=tmp_path)
    estimator = Estimator(no_model, config=config)
    with pytest.raises(
        UsageError, match=f"^{NOT_ALONE}, but this call trains without the cluster; call train_and_evaluate"
    ):
        estimator.train(no_model, steps=1)
    assert list(tmp_path.iterdir()) == []
