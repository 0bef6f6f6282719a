import json

import pytest

from ps_runtime.config.tf_config import ClusterConfig, TaskConfig, TfConfig, parse_flags, parse_tf_config
from ps_runtime.errors import ConfigError
from ps_runtime.specs.roles import Role

CLUSTER = {"chief": ["c:1"], "worker": ["w:1", "w:2"], "ps": ["p:1"]}


def parse(cluster=None, kind=None, index=None, **more):
    task = {key: value for key, value in (("type", kind), ("index", index)) if value is not None}
    return parse_tf_config(json.dumps({"cluster": cluster, "task": task} | more))


@pytest.mark.parametrize("text", ["", "  ", "{}", '{"task": {"type": "worker", "index": 0}}', '{"cluster": {}}'])
def test_no_cluster_is_a_local_run(text):
    assert parse_tf_config(text) == TfConfig(ClusterConfig(), TaskConfig(Role.CHIEF, 0))
    assert not parse_tf_config(text).cluster


@pytest.mark.parametrize(
    ("kind", "index", "role"),
    [("chief", 0, Role.CHIEF), ("worker", 1, Role.WORKER), ("ps", 0, Role.PS)],
)
def test_a_role_of_the_cluster(kind, index, role):
    config = parse(CLUSTER, kind, index, model_dir="/data/m", environment="cloud")

    assert config.cluster == ClusterConfig("c:1", ("w:1", "w:2"), ("p:1",))
    assert config.task == TaskConfig(role, index)
    assert (config.model_dir, config.environment) == ("/data/m", "cloud")


@pytest.mark.parametrize("cluster", [CLUSTER, CLUSTER | {"evaluator": ["e:1"]}])
def test_the_evaluator_sees_an_empty_cluster_whether_it_stands_inside_or_outside(cluster):
    assert parse(cluster, "evaluator", 0) == TfConfig(ClusterConfig(), TaskConfig(Role.EVALUATOR, 0))
    assert parse(cluster, "ps", 0).cluster == ClusterConfig("c:1", ("w:1", "w:2"), ("p:1",))


@pytest.mark.parametrize(
    ("kind", "index", "task"),
    [
        ("worker", 0, TaskConfig(Role.CHIEF, 0)),
        ("worker", 1, TaskConfig(Role.WORKER, 0)),
        ("ps", 0, TaskConfig(Role.PS, 0)),
    ],
)
def test_without_a_chief_worker_0_is_the_chief(kind, index, task):
    config = parse({"worker": ["w:1", "w:2"], "ps": ["p:1"]}, kind, index)

    assert config.cluster == ClusterConfig("w:1", ("w:2",), ("p:1",))
    assert config.task == task


def test_a_master_is_a_chief_that_evaluates():
    config = parse({"master": ["m:1"], "ps": ["p:1"]}, "master", 0)

    assert config.cluster.chief == "m:1"
    assert config.task == TaskConfig(Role.CHIEF, 0, evaluates=True)


def test_a_client_is_no_role_of_the_cluster_and_needs_no_index():
    assert parse(CLUSTER, "client").task == TaskConfig(None, 0)


@pytest.mark.parametrize("separator", [",", ";", ", "])
@pytest.mark.parametrize(
    ("job_name", "task_index", "task"),
    [
        ("worker", 0, TaskConfig(Role.CHIEF, 0)),
        ("worker", 1, TaskConfig(Role.WORKER, 0)),
        ("ps", 1, TaskConfig(Role.PS, 1)),
    ],
)
def test_flags_make_the_first_worker_the_chief(separator, job_name, task_index, task):
    config = parse_flags(separator.join(["a:1", "b:1"]), separator.join(["c:1", "d:1"]), job_name, task_index)

    assert config.cluster == ClusterConfig("c:1", ("d:1",), ("a:1", "b:1"))
    assert config.task == task


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", r"^TF_CONFIG: expected JSON, "),
        ("[" * 100_000, r"^TF_CONFIG: expected JSON, "),
        ("[]", r"^TF_CONFIG: expected a JSON object, got \[\]$"),
        ('{"clustr": {}}', r"^TF_CONFIG clustr: unknown field; did you mean 'cluster'\?$"),
        ('{"cluster": []}', r"^TF_CONFIG cluster: expected a JSON object, got \[\]$"),
        ('{"task": 3}', r"^TF_CONFIG task: expected a JSON object, got 3$"),
        ('{"task": {"typ": "ps"}}', r"^TF_CONFIG task\.typ: unknown field; did you mean 'type'\?$"),
        ('{"model_dir": 3}', r"^TF_CONFIG model_dir: expected a string, got 3$"),
        ('{"task": {"type": "ps"}}', r"^TF_CONFIG task\.type: 'ps' needs a cluster; set TF_CONFIG cluster$"),
        ('{"task": {"type": "worker", "index": 1}}', r"^TF_CONFIG task\.index: expected 0 without a cluster, got 1"),
    ],
)
def test_malformed_text_is_an_error_that_names_the_field(text, fault):
    with pytest.raises(ConfigError, match=fault):
        parse_tf_config(text)


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "fault"),
    [
        ({"ps": ["p:1"]}, "ps", 0, r"cluster\.chief: expected exactly one chief, got none"),
        ({"chief": ["c:1", "c:2"]}, "chief", 0, r"cluster\.chief: expected exactly one chief, got c:1, c:2$"),
        (
            {"chief": ["c:1"], "master": ["m:1"]},
            "chief",
            0,
            r"cluster\.chief: expected exactly one chief, got c:1, m:1",
        ),
        ({"master": ["m:1"], "evaluator": ["e:1"]}, "master", 0, r"cluster\.evaluator: a master evaluates itself"),
        ({"master": ["m:1"]}, "evaluator", 0, r"task\.type: a master evaluates itself"),
        (CLUSTER, None, 0, r"task\.type: expected a role, got nothing$"),
        (CLUSTER, "worker", None, r"task\.index: expected an integer >= 0, got nothing$"),
        (CLUSTER, "worker", "0", r"task\.index: expected an integer >= 0, got '0'$"),
        (CLUSTER, "worker", -1, r"task\.index: expected an integer >= 0, got -1$"),
        (CLUSTER, "worker", True, r"task\.index: expected an integer >= 0, got True$"),
        (CLUSTER, "worker", 2, r"task\.index: expected less than 2, the number of worker addresses, got 2$"),
        (CLUSTER, "evaluator", 1, r"task\.index: expected 0, got 1: a job has one evaluator$"),
        (CLUSTER, "workers", 0, r"task\.type: unknown role 'workers', expected one of .*; did you mean 'worker'\?$"),
        ({"chief": ["c:1"]}, "ps", 0, r"task\.type: 'ps' is not in the cluster, which has chief$"),
        (CLUSTER | {"workers": ["x:1"]}, "ps", 0, r"cluster\.workers: unknown role, .*; did you mean 'worker'\?$"),
        (CLUSTER | {"ps": ["p:1", "p:1"]}, "ps", 0, r"cluster\.ps: p:1 is there twice"),
        (CLUSTER | {"ps": ["c:1"]}, "ps", 0, r"cluster\.ps: c:1 is there twice$"),
        (CLUSTER | {"ps": "p:1"}, "ps", 0, r"cluster\.ps: expected a list of host:port, got 'p:1'$"),
        (CLUSTER | {"ps": ["p"]}, "ps", 0, r"cluster\.ps: expected a list of host:port, got \['p'\]$"),
        (CLUSTER | {"ps": ["p:65536"]}, "ps", 0, r"cluster\.ps: expected a list of host:port"),
    ],
)
def test_a_contradiction_is_an_error_that_names_the_field(cluster, kind, index, fault):
    with pytest.raises(ConfigError, match="^TF_CONFIG " + fault):
        parse(cluster, kind, index)


def test_all_faults_come_in_one_error():
    with pytest.raises(ConfigError) as raised:
        parse({"chef": ["c:1"], "ps": 3}, "ps", 0, modeldir="x")
    assert len(raised.value.faults) == 3


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (("a:1", "", "ps", 0), r"^--worker_hosts: expected exactly one chief, got none"),
        (("a", "c:1", "ps", 0), r"^--ps_hosts: expected a list of host:port, got \['a'\]$"),
        (("a:1", "c:1", "ps", 1), r"^--task_index: expected less than 1, the number of ps addresses, got 1$"),
        (("a:1", "c:1", "pss", 0), r"^--job_name: unknown role 'pss', .*; did you mean 'ps'\?$"),
        (("a:1", "c:1,c:1", "ps", 0), r"^--worker_hosts: c:1 is there twice"),
        (("", "", "ps", 0), r"^--job_name: 'ps' needs a cluster; set --ps_hosts and --worker_hosts$"),
    ],
)
def test_an_error_in_flags_names_the_flag(flags, fault):
    with pytest.raises(ConfigError, match=fault):
        parse_flags(*flags)
