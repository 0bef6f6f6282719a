"""Worker contexts within a function that the distribute coordinator calls, as in TensorFlow."""

from __future__ import annotations

import threading
from dataclasses import replace

import cloudpickle
import pytest

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.specs.worker_context import ChiefSessionCreator, WorkerSessionCreator
from tests.conformance.coordinated import STRATEGY, context_of
from tests.parity.coordinator import FULL, NO_CHIEF, Strategy


@pytest.fixture(autouse=True)
def _model_dir(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"model_dir": "/models/a"}')


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "is_chief"),
    [
        (FULL, "chief", 0, True),
        (FULL, "worker", 0, False),
        (NO_CHIEF, "worker", 0, True),
        (NO_CHIEF, "worker", 1, False),
        (None, None, None, True),
    ],
)
def test_of_parameter_servers_the_chief_gives_values_and_saves(cluster, kind, index, is_chief):
    context, _ = context_of(cluster_spec=cluster, task_type=kind, task_id=index)
    assert context.strategy is not STRATEGY
    answers = {context.experimental_should_init, context.should_checkpoint, context.should_save_summary}
    assert answers == {is_chief}
    assert context.strategy.extended.experimental_between_graph


def test_an_evaluator_without_a_strategy_has_no_answers():
    context, _ = context_of(cluster_spec=FULL, task_type="evaluator", task_id=0)
    assert context.strategy is None
    for name in ("experimental_should_init", "should_checkpoint", "should_save_summary"):
        with pytest.raises(
            UsageError, match=f"^{name}: the evaluator has no strategy; give run_distribute_coordinator"
        ):
            getattr(context, name)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cluster_spec": {"chief": ["c:1"]}, "task_type": "chief", "task_id": 0},
        {"cluster_spec": FULL, "task_type": "evaluator", "task_id": 0},
        {"cluster_spec": FULL, "task_type": "chief", "task_id": 0, "strategy": Strategy(between_graph=False)},
    ],
    ids=["local", "the only worker", "the evaluator", "one call for all"],
)
def test_who_is_alone_does_not_wait(options):
    context, _ = context_of(look=lambda context: context.wait_for_other_workers(), **options)
    assert not context.has_barrier


def test_without_a_barrier_nobody_takes_others_for_there():
    words = r"^wait_for_other_workers: worker-1 has no barrier, so it cannot wait for the others; check has_barrier"
    options = {"cluster_spec": FULL, "task_type": "worker", "task_id": 1}
    with pytest.raises(ValueError, match=words):
        context_of(look=lambda context: context.wait_for_other_workers(), **options)
    with pytest.raises(ValueError, match=r"^wait_for_other_workers: timeout_secs should be greater than 0, got 0$"):
        context_of(look=lambda context: context.wait_for_other_workers(0))


def test_a_function_that_has_a_context_is_pickled_without_what_belongs_to_the_task():
    context, _ = context_of(cluster_spec=FULL, task_type="worker", task_id=1)
    alive = replace(context, barrier=threading.Lock(), check=threading.Lock().acquire)
    again = cloudpickle.loads(cloudpickle.dumps(lambda: alive))()
    assert (str(again), again.num_workers, again.cluster_spec.as_dict()) == ("worker-1", 3, FULL)
    assert (alive.has_barrier, again.has_barrier) == (True, False)
    again.check()
    with pytest.raises(UsageError, match=r"worker-1 has no barrier, .*, not on a pickled context$"):
        again.wait_for_other_workers()


def test_a_session_creator_has_the_settings_of_both():
    options = {"cluster_spec": FULL, "task_type": "worker", "task_id": 1, "session_config": {"a": [1], "b": 2}}
    _, found = context_of(
        look=lambda context: context.session_creator(config={"b": 3, "c": 4}, max_wait_secs=5), **options
    )
    assert found == WorkerSessionCreator("grpc://w:2", {"a": [1], "b": 2, "c": 4}, 5)
    assert context_of(look=lambda context: context.session_creator(), **options)[1].max_wait_secs == 7200
    options |= {"task_type": "chief", "task_id": 0, "rpc_layer": ""}
    context, found = context_of(look=lambda context: context.session_creator(checkpoint_dir="/m"), **options)
    assert found == ChiefSessionCreator("c:1", {"a": [1], "b": 2}, "/m")
    assert context.session_config == {"a": [1], "b": 2}
    context.session_config["a"].append(0)
    assert context.session_config == {"a": [1], "b": 2} == options["session_config"]


class Tuned(Strategy):
    """A strategy that sets sessions up for its task."""

    def configure(self, session_config=None, cluster_spec=None, task_type=None, task_id=None):
        """Write into the settings."""
        session_config["threads"] += 1
        session_config["filters"].append(f"/job:{task_type}/task:{task_id}")


@pytest.mark.parametrize(
    ("task", "place"),
    [
        ({}, "/job:None/task:None"),
        ({"cluster_spec": FULL, "task_type": "worker", "task_id": 1}, "/job:worker/task:1"),
        ({"cluster_spec": FULL, "task_type": "evaluator", "task_id": 0}, "/job:None/task:None"),
    ],
    ids=["local", "a worker", "the evaluator"],
)
def test_what_a_strategy_sets_up_is_what_a_session_of_its_task_gets(task, place):
    given = {"threads": 1, "filters": ["all"]}
    tuned = Tuned(between_graph=True)
    context, creator = context_of(
        look=lambda context: context.session_creator(),
        strategy=tuned,
        eval_strategy=tuned,
        session_config=given,
        **task,
    )
    assert context.session_config == creator.config == {"threads": 2, "filters": ["all", place]}
    assert given == {"threads": 1, "filters": ["all"]}


def test_the_evaluator_has_its_own_strategy_without_a_cluster():
    own = Strategy(between_graph=False)
    context, _ = context_of(cluster_spec=FULL, task_type="evaluator", task_id=0, eval_strategy=own)
    assert (context.strategy.configured, own.configured) == ([[None, None, None]], [])


def test_a_cluster_that_a_context_has_told_may_be_changed():
    context, _ = context_of(cluster_spec=FULL, task_type="worker", task_id=1)
    context.cluster_spec.as_dict()["worker"].append("w:3")
    assert (context.cluster_spec.as_dict(), context.num_workers) == (FULL, 3)


def test_what_a_session_creator_does_not_take():
    given = {"scaffold": 1, "config": 2, "checkpoint_dir": 3, "checkpoint_filename_with_path": "x", "max_wait_secs": 0}
    with pytest.raises(TypeError) as caught:
        context_of(look=lambda context: context.session_creator(**given))
    assert [fault.partition(": ")[2].split()[0] for fault in caught.value.faults] == [
        "scaffold",
        "checkpoint_filename_with_path",
        "config",
        "checkpoint_dir",
        "max_wait_secs",
    ]
