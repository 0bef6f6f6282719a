"""Facts of a process about its place in the cluster."""

import pickle

import pytest

from psflow.ps_runtime.errors import ArgumentTypeError, UsageError
from psflow.ps_runtime.specs.roles import RoleId
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.task_facts import ClusterSpec, TaskFacts

# task_type, task_id, is_chief, num_ps_replicas, num_worker_replicas, global_id_in_cluster; as TensorFlow 2.15 has them
FACTS = {
    "chief-0": ("chief", 0, True, 2, 3, 0),
    "worker-0": ("worker", 0, False, 2, 3, 1),
    "worker-1": ("worker", 1, False, 2, 3, 2),
    "ps-0": ("ps", 0, False, 2, 3, 3),
    "ps-1": ("ps", 1, False, 2, 3, 4),
    "evaluator-0": ("evaluator", 0, False, 0, 0, None),
}


def facts_of(config):
    return (
        config.task_type,
        config.task_id,
        config.is_chief,
        config.num_ps_replicas,
        config.num_worker_replicas,
        config.global_id_in_cluster,
    )


@pytest.mark.parametrize(("role", "facts"), FACTS.items())
def test_of_a_role(role, facts):
    config = RunConfig().as_seen_by(TaskFacts.of(RoleId.parse(role), 2, 2))
    assert facts_of(config) == facts
    tasks = {"chief": ["chief-0"], "worker": ["worker-0", "worker-1"], "ps": ["ps-0", "ps-1"]}
    assert config.cluster_spec.as_dict() == ({} if role == "evaluator-0" else tasks)


def test_of_a_chief_without_workers():
    config = RunConfig().as_seen_by(TaskFacts.of(RoleId.parse("chief-0"), 1, 0))
    assert facts_of(config) == ("chief", 0, True, 1, 1, 0)
    assert config.cluster_spec.jobs == ["chief", "ps"]


def test_of_a_lone_process():
    assert facts_of(RunConfig()) == ("worker", 0, True, 0, 1, 0)
    assert not RunConfig().cluster_spec
    assert RunConfig().cluster_spec.jobs == []


def test_a_cluster_counts_its_tasks():
    cluster = ClusterSpec({"worker": ("worker-0", "worker-1")})
    assert [cluster.num_tasks(job) for job in ("worker", "ps")] == [2, 0]
    assert cluster


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (5, "ClusterSpec: tasks should be a mapping of types to addresses, got int 5"),
        (["a:1"], "ClusterSpec: tasks should be a mapping of types to addresses, got list ['a:1']"),
        ({"ps": None}, "ClusterSpec: tasks['ps'] should be a list or tuple of addresses, got None"),
        ({"ps": "a:1"}, "ClusterSpec: tasks['ps'] should be a list or tuple of addresses, got str 'a:1'"),
        ({"ps": [1]}, "ClusterSpec: tasks['ps'] should be a list or tuple of addresses, got list [1]"),
        ({1: ["a:1"]}, "ClusterSpec: a type of task should be a str, such as 'worker', got int 1"),
    ],
)
def test_what_is_no_cluster_is_refused(given, words):
    with pytest.raises(ArgumentTypeError) as caught:
        ClusterSpec(given)
    assert caught.value.faults == (words,)


def test_the_facts_stay_through_replace_and_pickling_and_make_no_other_config():
    config = RunConfig(save_checkpoints_steps=3).as_seen_by(TaskFacts.of(RoleId.parse("worker-1"), 2, 2))
    assert facts_of(config.replace(tf_random_seed=4)) == FACTS["worker-1"]
    assert facts_of(pickle.loads(pickle.dumps(config))) == FACTS["worker-1"]
    assert config == RunConfig(save_checkpoints_steps=3)
    assert config.save_checkpoints_secs is None


@pytest.mark.parametrize("name", ["_task", "task_type", "is_chief"])
def test_the_facts_are_no_setting(name):
    with pytest.raises(UsageError, match=f"RunConfig has no '{name}'"):
        RunConfig().replace(**{name: 1})


def test_a_cluster_tells_of_its_tasks():
    cluster = ClusterSpec({"worker": ("w:1", "w:2"), "ps": ["p:1"]})
    assert [cluster.job_tasks(job) for job in cluster.jobs] == [["w:1", "w:2"], ["p:1"]]
    assert [cluster.task_indices(job) for job in cluster.jobs] == [[0, 1], [0]]
    assert [cluster.task_address("worker", index) for index in (0, 1)] == ["w:1", "w:2"]


@pytest.mark.parametrize(
    ("job", "index", "words"),
    [
        (
            "wroker",
            0,
            "job_name should be a type of its tasks, got 'wroker'; there are worker, ps; did you mean 'worker'",
        ),
        (None, 0, "job_name should be a type of its tasks, got None; there are worker, ps$"),
        ("worker", 2, "task_index should be from 0 to 1, as worker has 2 addresses, got 2"),
        ("worker", -1, "task_index should be from 0 to 1, as worker has 2 addresses, got -1"),
        ("worker", "0", "task_index should be a whole number, got '0'"),
    ],
)
def test_a_task_that_is_not_there_has_no_address(job, index, words):
    with pytest.raises(UsageError, match=f"^ClusterSpec: {words}"):
        ClusterSpec({"worker": ["w:1", "w:2"], "ps": ["p:1"]}).task_address(job, index)
