"""The distribute coordinator: what each process calls, as which task, and what its context says, as in TensorFlow."""

from __future__ import annotations

import copy
import json
import threading
from contextlib import nullcontext

import pytest

from psflow import (
    CoordinatorMode,
    RunConfig,
    get_current_worker_context,
    run_distribute_coordinator,
)
from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.called_task import Surroundings
from psflow.ps_runtime.coordinator import coordinator, independent, serving, standalone
from psflow.ps_runtime.coordinator.program import Program
from psflow.ps_runtime.errors import ArgumentTypeError, ConfigError, UsageError
from psflow.ps_runtime.specs.task_facts import ClusterSpec
from tests.conformance.coordinated import STRATEGY, context_of
from tests.parity.coordinator import CALLS_FILE, CASES, CLIENT, FULL, INDEPENDENT, NO_CHIEF, Strategy, called

TENSORFLOW = json.loads(CALLS_FILE.read_text())


@pytest.fixture(autouse=True)
def _model_dir(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"model_dir": "/models/a"}')


class Here:
    """Calls in this thread what a cluster would call, and keeps what it was asked for."""

    def __init__(self):
        self.calls, self.served, self.num_waits = [], [], 0
        self.clients = []

    def __call__(self, client, calls):
        self.clients.append(client)
        self.calls += calls
        for call in calls:
            call.function(Surroundings(never_stop, self if call.has_barrier else None))
        return nullcontext(self)

    def join(self):
        """Wait for nothing."""

    def wait(self, timeout_secs):
        """Record that a task waits."""
        self.num_waits += 1

    def serve(self, place, timeout_secs, check):
        """Note who serves."""
        self.served.append((str(place.task.role), timeout_secs, place.config.model_dir))


@pytest.fixture
def here(monkeypatch):
    """Return what takes the place of a cluster."""
    found = Here()
    monkeypatch.setattr(Program, "check_pickled", lambda self: None)  # tasks of this thread may share a lock
    monkeypatch.setattr(standalone, "RoleCalls", found)
    monkeypatch.setattr(standalone, "open_cluster", lambda address, num_slots: nullcontext("cluster"))
    for module in (standalone, independent):
        monkeypatch.setattr(module, "serve", found.serve)
    return found


@pytest.mark.parametrize("name", CASES)
def test_who_calls_what_as_which_task_is_that_of_tensorflow(name, here):
    def num_served():
        # a client of TensorFlow's finds its ps there, and does not start them
        return len(here.served) if CASES[name]["mode"] == INDEPENDENT else 0

    found = called(run_distribute_coordinator, get_current_worker_context, num_served, CASES[name])
    assert found == TENSORFLOW["calls"][name]


def test_all_calls_are_compared():
    assert TENSORFLOW["tensorflow"].startswith("2.15")
    assert TENSORFLOW["calls"].keys() == CASES.keys()


def test_a_client_has_each_task_called_at_its_address_and_the_ps_serve(here):
    assert run_distribute_coordinator(lambda own: "x", STRATEGY, cluster_spec=FULL) is None
    calls = [(str(call.role), call.address, call.has_barrier, call.serves) for call in here.calls]
    assert calls == [
        ("ps-0", "p:1", False, True),
        ("chief-0", "c:1", True, False),
        ("worker-0", "w:1", True, False),
        ("worker-1", "w:2", True, False),
        ("evaluator-0", "e:1", False, False),
    ]
    assert here.served == [("ps-0", float("inf"), "/models/a")]


@pytest.mark.parametrize(("client", "used"), [("a client", "a client"), (None, "cluster")])
def test_tasks_are_called_on_the_cluster_that_is_given_else_on_one_of_their_own(client, used, here, monkeypatch):
    monkeypatch.setattr(coordinator, "check_client", lambda client: None)
    run_distribute_coordinator(lambda own: None, STRATEGY, cluster_spec=NO_CHIEF, client=client)
    assert here.clients == [used]


def test_in_graph_the_client_calls_for_all_and_only_the_evaluator_is_elsewhere(here):
    strategy = Strategy(between_graph=False)
    assert run_distribute_coordinator(lambda own: "x", strategy, cluster_spec=NO_CHIEF) == "x"
    assert here.calls == []
    assert run_distribute_coordinator(lambda own: "x", strategy, cluster_spec=FULL) == "x"
    assert [str(call.role) for call in here.calls] == ["evaluator-0"]


@pytest.mark.parametrize(
    ("kind", "index", "between_graph", "role"),
    [("ps", 0, True, "ps-0"), ("ps", 0, False, "ps-0"), ("worker", 1, False, "worker-1")],
)
def test_a_process_without_a_function_serves(kind, index, between_graph, role, here):
    options = {"mode": INDEPENDENT, "cluster_spec": FULL, "task_type": kind, "task_id": index}
    assert run_distribute_coordinator(lambda own: "x", Strategy(between_graph), **options) is None
    assert here.served == [(role, 40.0, "/models/a")]


def test_a_worker_without_a_function_and_without_ps_has_nothing_to_serve(here):
    task = {"mode": INDEPENDENT, "task_type": "worker", "task_id": 0}
    cluster = {"chief": ["c:1"], "worker": ["w:1"]}
    with pytest.raises(
        ConfigError, match=r"^worker-0 has nothing to do: the chief calls .*; leave it out, or add a ps"
    ):
        run_distribute_coordinator(pytest.fail, Strategy(between_graph=False), cluster_spec=cluster, **task)
    assert here.calls == here.served == []


@pytest.mark.parametrize(("mode", "kind"), [(CLIENT, "client"), (INDEPENDENT, "chief"), (INDEPENDENT, "ps")])
def test_without_a_model_dir_a_ps_would_find_nobody(mode, kind, here, monkeypatch):
    monkeypatch.delenv("TF_CONFIG")
    task = {"mode": mode, "task_type": kind, "task_id": 0}
    with pytest.raises(ConfigError, match=r"^TF_CONFIG: model_dir is missing: a ps calls no worker_fn, and finds the"):
        run_distribute_coordinator(pytest.fail, STRATEGY, cluster_spec=FULL, **task)
    assert here.calls == here.served == []
    if kind != "ps":
        run_distribute_coordinator(lambda own: None, STRATEGY, cluster_spec={"chief": ["c:1"]}, **task)


@pytest.mark.parametrize("mode", CoordinatorMode)
def test_the_ps_look_for_the_chief_where_an_estimator_of_the_same_model_dir_is(mode, tmp_path, monkeypatch):
    met = []
    monkeypatch.setattr(serving, "serve_manual_role", lambda task, model_dir, *_: met.append(model_dir))
    monkeypatch.setenv("TF_CONFIG", '{"model_dir": "m"}')
    monkeypatch.chdir(tmp_path)
    here = Here()
    monkeypatch.setattr(standalone, "RoleCalls", here)
    monkeypatch.setattr(standalone, "open_cluster", lambda address, num_slots: nullcontext("cluster"))
    task = {"task_type": "ps", "task_id": 0} if mode == CoordinatorMode.INDEPENDENT_WORKER else {}
    run_distribute_coordinator(lambda own: None, STRATEGY, mode=mode, cluster_spec=FULL, **task)
    assert set(met) == {str(tmp_path / "m")}


def test_outside_there_is_no_context(here):
    assert get_current_worker_context() is None
    context_of()
    assert get_current_worker_context() is None
    with pytest.raises(KeyError, match="of the user"):
        context_of(look=lambda context: {}["of the user"])
    assert get_current_worker_context() is None


@pytest.mark.parametrize("options", [{}, {"cluster_spec": FULL}, {"mode": INDEPENDENT}])
def test_a_worker_fn_runs_no_coordinator(options, here):
    words = r"^run_distribute_coordinator cannot be called within a worker_fn, here worker-1; call it once$"
    with pytest.raises(ValueError, match=words):
        context_of(
            cluster_spec=FULL,
            task_type="worker",
            task_id=1,
            look=lambda context: run_distribute_coordinator(print, STRATEGY, **options),
        )
    with pytest.raises(ValueError, match=r"here a worker_fn without a cluster; call it once$"):
        context_of(look=lambda context: run_distribute_coordinator(print, STRATEGY, **options))


def test_the_strategy_of_the_caller_stays_as_it_is(here):
    strategy = Strategy(between_graph=True)
    context, _ = context_of(strategy=strategy, cluster_spec=FULL, task_type="worker", task_id=1)
    assert strategy.configured == []
    assert context.strategy.configured == [[FULL, "worker", 1]]


def test_workers_of_a_client_wait_for_each_other_and_others_do_not(here):
    run_distribute_coordinator(
        lambda own: get_current_worker_context().wait_for_other_workers(), STRATEGY, cluster_spec=FULL
    )
    assert here.num_waits == 3


def test_a_process_may_call_a_coordinator_as_often_as_it_likes(here):
    for task_id in (0, 1):
        context, _ = context_of(cluster_spec=FULL, task_type="worker", task_id=task_id)
        assert str(context) == f"worker-{task_id}"
    for _ in range(2):
        run_distribute_coordinator(lambda own: None, STRATEGY, cluster_spec=NO_CHIEF)
    assert [str(call.role) for call in here.calls] == ["ps-0", "worker-0", "worker-1", "worker-2"] * 2


@pytest.mark.parametrize("empty", [None, {}, ClusterSpec()], ids=["none", "a mapping", "a ClusterSpec"])
def test_an_empty_cluster_is_none(empty, monkeypatch):
    assert context_of(cluster_spec=empty)[0].distributed_mode is False
    content = {"cluster": FULL, "task": {"type": "worker", "index": 1}, "model_dir": "/models/a"}
    monkeypatch.setenv("TF_CONFIG", json.dumps(content))
    assert str(context_of(cluster_spec=empty)[0]) == "worker-1"
    monkeypatch.setenv("TF_CONFIG", json.dumps({**content, "cluster": {}, "task": {}}))
    assert str(context_of(cluster_spec=empty)[0]) == "a worker_fn without a cluster"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"^client needs the tasks of a cluster; give cluster_spec$"),
        (
            {"cluster_spec": FULL, "mode": INDEPENDENT, "task_type": "chief", "task_id": 0},
            r"^client is of a standalone_client; each independent_worker is a process of its own$",
        ),
    ],
    ids=["no cluster", "an independent worker"],
)
def test_a_client_has_tasks_to_call(options, words, here, monkeypatch):
    monkeypatch.setattr(coordinator, "check_client", lambda client: None)
    with pytest.raises(UsageError, match=words):
        run_distribute_coordinator(pytest.fail, STRATEGY, client="a client", **options)
    assert here.calls == here.served == []


def test_the_cluster_of_tf_config_is_that_of_who_names_none(monkeypatch, here):
    def place(cluster, task=None, **more):
        content = {"cluster": cluster, "model_dir": "/models/a", **({"task": task} if task else {}), **more}
        monkeypatch.setenv("TF_CONFIG", json.dumps(content))

    def seen(**options):
        context, _ = context_of(**options)
        return context.cluster_spec.as_dict(), context.task_type, context.task_id, context.master_target

    place(FULL, {"type": "worker", "index": 1}, rpc_layer="fast")
    assert seen() == (FULL, "worker", 1, "fast://w:2")
    assert seen(task_type="chief", task_id=0) == (FULL, "worker", 1, "fast://w:2")
    assert seen(cluster_spec=NO_CHIEF, task_type="worker", task_id=2) == (NO_CHIEF, "worker", 2, "fast://w:3")
    place(FULL)
    assert seen(task_type="chief", task_id=0) == (FULL, "chief", 0, "grpc://c:1")
    run_distribute_coordinator(print, STRATEGY)
    assert len(here.calls) == 5
    place(FULL, {"type": "client"})
    run_distribute_coordinator(print, STRATEGY)
    assert len(here.calls) == 10


@pytest.mark.parametrize("options", [{"rpc_layer": None}, {"rpc_layer": ""}])
def test_without_a_layer_a_target_is_an_address(options, monkeypatch, here):
    place = {"cluster_spec": FULL, "task_type": "worker", "task_id": 1, "mode": INDEPENDENT}
    assert context_of(**place, **options)[0].master_target == "w:2"
    monkeypatch.setenv("TF_CONFIG", json.dumps({"model_dir": "/models/a", **options}))
    assert context_of(**place)[0].master_target == "w:2"


@pytest.mark.parametrize("task", [{"type": "client"}, {"type": "client", "index": 0}])
@pytest.mark.parametrize("mode", CoordinatorMode)
def test_a_client_without_a_cluster_is_alone(mode, task, monkeypatch, here):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"task": task, "model_dir": "/models/a"}))
    calls = []

    def look(strategy):
        calls.append((get_current_worker_context().distributed_mode, RunConfig().cluster, RunConfig().model_dir))

    run_distribute_coordinator(look, STRATEGY, mode=mode)
    assert calls == [(False, None, "/models/a")]
    assert here.calls == here.served == []


WRONG = {
    "no JSON": ("{", r"^TF_CONFIG should be a JSON object, got '\{'"),
    "an unknown role": ({"cluster": {**FULL, "boss": ["b:1"]}}, r"^TF_CONFIG: cluster.boss: expected one of"),
    "a master": ({"cluster": {"master": ["c:1"]}}, r"^TF_CONFIG: cluster.master: the distribute coordinator knows a"),
    "two chiefs": ({"cluster": {"chief": ["c:1", "c:2"]}}, r"^TF_CONFIG: cluster.chief should have one address, got 2"),
    "an address twice": ({"cluster": {"chief": ["c:1"], "ps": ["c:1"]}}, r"^TF_CONFIG: cluster.ps\[0\] is 'c:1', as"),
    "no replica": ({"cluster": {"ps": ["p:1"]}}, r"^TF_CONFIG: cluster should have one chief, or workers"),
    "an index out of range": (
        {"cluster": FULL, "task": {"type": "worker", "index": 2}},
        r"^TF_CONFIG: task.index should be from 0 to 1, as cluster.worker has 2 addresses, got 2$",
    ),
    "an unknown task": ({"cluster": FULL, "task": {"type": "cheif", "index": 0}}, "did you mean 'chief'"),
    "no index": ({"cluster": FULL, "task": {"type": "worker"}}, r"^TF_CONFIG: task.index missing"),
    "a layer that is none": ({"cluster": FULL, "rpc_layer": 3}, r"^TF_CONFIG: rpc_layer should be a text, got 3$"),
    "a task that is a list": ({"cluster": FULL, "task": []}, r"^TF_CONFIG: task should be an object, got \[\]$"),
    "a task without a cluster": ({"task": {"type": "chief", "index": 0}}, "; give cluster$"),
}


def test_a_cluster_may_be_a_mapping_of_lists_or_tuples_or_a_cluster_spec():
    for cluster in (FULL, {kind: tuple(names) for kind, names in FULL.items()}, ClusterSpec(FULL)):
        context, _ = context_of(cluster_spec=cluster, task_type="worker", task_id=1)
        assert context.cluster_spec.as_dict() == FULL


@pytest.mark.parametrize("mode", CoordinatorMode)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_tf_config_is_refused_before_anything_starts(name, mode, monkeypatch, here):
    content, words = WRONG[name]
    monkeypatch.setenv("TF_CONFIG", content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ConfigError, match=words):
        run_distribute_coordinator(pytest.fail, STRATEGY, mode=mode)
    assert here.calls == here.served == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cluster_spec": {"worker": ["w"]}}, r"^run_distribute_coordinator: cluster.worker\[0\] should be a host and"),
        (
            {"cluster_spec": FULL, "task_type": "worker", "task_id": 2},
            r"^run_distribute_coordinator: task_id should be from 0 to 1, as cluster.worker has 2 addresses, got 2$",
        ),
        (
            {"cluster_spec": FULL, "task_type": "cheif", "task_id": 0},
            r"^run_distribute_coordinator: task_type should be",
        ),
        ({"cluster_spec": FULL, "task_type": "chief"}, r"^run_distribute_coordinator: task_id missing"),
        (
            {"cluster_spec": FULL, "task_type": "chief", "task_id": 0},
            r"^this process is chief 0, and a standalone_client",
        ),
        ({"cluster_spec": FULL, "mode": INDEPENDENT}, r"^task_type should be chief, worker, ps or evaluator in mode "),
        (
            {"cluster_spec": FULL, "mode": "standalone"},
            r"^mode should be one of .*; did you mean 'standalone_client'\?$",
        ),
        (
            {"cluster_spec": FULL, "mode": None},
            r"^mode should be one of standalone_client, independent_worker, got None$",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(options, words, here):
    with pytest.raises(UsageError, match=words):
        run_distribute_coordinator(pytest.fail, STRATEGY, **options)
    assert here.calls == here.served == []


def test_of_a_cluster_that_is_none_nothing_is_said_of_a_task_that_nobody_wrote(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": [1], "task": {}}')
    with pytest.raises(ConfigError) as caught:
        run_distribute_coordinator(print, STRATEGY)
    assert caught.value.faults == ("TF_CONFIG: cluster should be an object, got [1]",)


@pytest.mark.parametrize("name", ["session_config", "strategy", "eval_strategy"])
@pytest.mark.parametrize("mode", [None, *CoordinatorMode])
def test_what_cannot_be_copied_is_refused_in_every_mode_and_task(mode, name, here, monkeypatch):
    if mode is not None:
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": FULL, "task": {"type": "ps", "index": 0}}))
    strategy = copy.deepcopy(STRATEGY)
    strategy.lock = threading.Lock()
    wrong = {"session_config": {"a": threading.Lock()}}.get(name, strategy)
    words = rf"^run_distribute_coordinator: {name} cannot be copied for each task: .*'_thread\.lock' .*; make within"
    with pytest.raises(UsageError, match=words) as caught:
        run_distribute_coordinator(
            **{"worker_fn": pytest.fail, "strategy": STRATEGY, "mode": mode or CLIENT, name: wrong}
        )
    assert len(caught.value.faults) == 1
    assert here.calls == here.served == []


@pytest.mark.parametrize("name", ["worker_fn", "eval_fn"])
def test_what_cannot_be_pickled_is_refused_before_a_cluster_starts(name, monkeypatch):
    started = []
    monkeypatch.setattr(standalone, "open_cluster", lambda *given: started.append(given))
    served = (number for number in range(3))
    options = {"worker_fn": print, "cluster_spec": FULL}
    words = rf"^run_distribute_coordinator: {name} cannot travel .*: variable 'served' of .* is a generator .*; create"
    with pytest.raises(UsageError, match=words) as caught:
        run_distribute_coordinator(**{**options, name: lambda own: served}, strategy=STRATEGY)
    assert len(caught.value.faults) == 1
    assert started == []


def test_arguments_of_another_type_are_refused_together():
    with pytest.raises(ArgumentTypeError) as caught:
        run_distribute_coordinator(1, None, 2, 3, cluster_spec=["w:1"], session_config=4, rpc_layer=5)
    names = ["worker_fn", "eval_fn", "strategy", "eval_strategy", "cluster_spec", "session_config", "rpc_layer"]
    assert [fault.split()[1] for fault in caught.value.faults] == names
    with pytest.raises(ArgumentTypeError, match=r"^client should be a distributed.Client or None, got str 'x'$"):
        run_distribute_coordinator(print, STRATEGY, client="x")
    assert CLIENT == CoordinatorMode.STANDALONE_CLIENT


def test_without_a_cluster_who_evaluates_nothing_is_warned(caplog):
    for eval_fn, warnings in ((None, ["there is no evaluation"]), (print, [])):
        caplog.clear()
        run_distribute_coordinator(lambda own: None, STRATEGY, eval_fn)
        assert [record.getMessage().partition(":")[0] for record in caplog.records] == warnings
