"""Jobs of several roles over real sockets: the same bits as in one process, and everyone leaves."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import InputError, NanGradientError, RefusedError, StoppedError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.hooks.base import SessionRunHook
from psflow.ps_runtime.model.scaffold import Scaffold
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.partitioners import fixed_size_partitioner
from psflow.ps_runtime.protocol.message import Kind, Message
from psflow.ps_runtime.roles.chief import run_chief
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Sync
from psflow.ps_runtime.specs.roles import Role
from psflow.ps_runtime.specs.run_config import RunConfig
from tests.ps_runtime.estimator.regression import (
    BATCH_SIZE,
    NUM_BATCHES,
    NUM_RECORDS,
    BatchRows,
    FailAt,
    X,
    Y,
    arrays_of,
    batches,
    computed,
    filtered,
    records,
    regression,
    shuffled,
    spoilt,
    steps_of,
)


@pytest.fixture
def make(tmp_path):
    return lambda name="model": Estimator(
        regression, str(tmp_path / name), RunConfig(tf_random_seed=1, save_checkpoints_steps=5)
    )


def train(roles, estimator, input_fn=shuffled, max_steps=12, hooks=(), each_worker_reads_all=False, **size):
    spec = TrainSpec(input_fn, max_steps, hooks, each_worker_reads_all=each_worker_reads_all)
    with Attempt(estimator, spec, None, **size) as attempt:
        return roles.train(attempt.job())


@pytest.mark.parametrize("input_fn", [shuffled, batches])
@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize("transport", ["shm", "unix", "tcp"])
def test_sockets_and_shards_change_no_bit(roles, make, transport, num_ps, input_fn):
    make("here").train(input_fn, max_steps=10)
    there = make("there")
    reports = train(roles, there, input_fn, 10, num_ps=num_ps, transport=transport)
    assert arrays_of(there.model_dir, 10) == arrays_of(make("here").model_dir, 10)
    assert reports["chief-0"]["transport"] == transport
    assert {report["exit"] for report in reports.values()} == {"finished"}
    assert reports.keys() == {"chief-0", *(f"ps-{i}" for i in range(num_ps))}


def test_an_interrupted_job_goes_on_with_the_same_bits_on_another_number_of_ps(roles, make):
    make("here").train(shuffled, max_steps=12)
    there = make("there")
    with Attempt(there, TrainSpec(shuffled, 12, [FailAt(8)]), None, num_ps=2) as attempt:
        job = attempt.job()
        _, connect_functions = roles.start_ps(job)
        with pytest.raises(ZeroDivisionError, match="as planned"):
            run_chief(job, roles.context(job, Role.CHIEF), connect_functions)
        roles.join()
    roles.stop.clear()
    train(roles, there, num_ps=1)
    assert arrays_of(there.model_dir, 12) == arrays_of(make("here").model_dir, 12)


def sliced(features, labels, mode):
    """As `regression`, which finds its variable: of two rows, each a slice of its own."""
    get_variable("w", (2,), partitioner=fixed_size_partitioner(2))
    return regression(features, labels, mode)


def test_slices_change_no_bit_and_a_job_goes_on_with_others(roles, make, tmp_path):
    make("here").train(shuffled, max_steps=12)
    there = make("there")
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=5)
    train(roles, Estimator(sliced, there.model_dir, config), max_steps=8, num_ps=2)
    train(roles, there, num_ps=3)
    assert arrays_of(there.model_dir, 12) == arrays_of(make("here").model_dir, 12)


def of_torch():
    """Return the records as `records` does, as a map-style data set of torch."""
    pytest.importorskip("torch")
    from psflow.torch import batches

    return batches([({"x": x, "row": row}, y) for row, (x, y) in enumerate(zip(X, Y, strict=True))], BATCH_SIZE)


class SharedRows(BatchRows):
    """Keeps the rows that all replicas see; each has its own copy of a hook on a cluster, but not here."""

    lock = threading.Lock()

    def after_run(self, run_context, run_values):
        with self.lock:
            super().after_run(run_context, run_values)


@pytest.mark.parametrize("input_fn", [records, computed, of_torch, batches, filtered])
def test_replicas_share_an_epoch_so_that_each_example_is_used_once(roles, make, input_fn):
    seen = SharedRows()
    estimator = make()
    reports = train(roles, estimator, input_fn, None, [seen], num_workers=2)
    assert sorted(seen.rows) == list(range(NUM_RECORDS))
    assert steps_of(estimator.model_dir)[-1] == NUM_BATCHES
    assert reports.keys() == {"chief-0", "worker-0", "worker-1", "ps-0"}
    assert {report["exit"] for report in reports.values()} == {"finished"}


@pytest.mark.parametrize("input_fn", [records, computed, batches, filtered])
def test_where_each_worker_reads_all_every_replica_uses_each_example_once(roles, make, input_fn):
    seen = SharedRows()
    estimator = make()
    reports = train(roles, estimator, input_fn, None, [seen], each_worker_reads_all=True, num_workers=2)
    assert sorted(seen.rows) == sorted([*range(NUM_RECORDS)] * 3)
    assert steps_of(estimator.model_dir)[-1] == 3 * NUM_BATCHES
    job = reports["chief-0"]["statistics"]["job"]
    assert (job["examples"], job["epochs_completed"], job["repeats"], job["misses"]) == (3 * NUM_RECORDS, 1, 0, 0)
    assert {report["exit"] for report in reports.values()} == {"finished"}


@pytest.mark.parametrize("input_fn", [records, batches])
@pytest.mark.parametrize(
    ("consistency", "pipeline_depth"), [(Async(), 1), (BoundedStaleness(1), 0), (Sync(), 0), (Sync(2), 0)]
)
def test_each_consistency_uses_all_that_each_replica_reads(roles, make, consistency, pipeline_depth, input_fn):
    config = RunConfig(tf_random_seed=1, consistency=consistency, pipeline_depth=pipeline_depth)
    estimator = Estimator(regression, make().model_dir, config)
    reports = train(roles, estimator, input_fn, None, each_worker_reads_all=True, num_workers=2, num_ps=2)
    job = reports["chief-0"]["statistics"]["job"]
    assert (job["examples"], job["epochs_completed"], job["repeats"], job["misses"]) == (3 * NUM_RECORDS, 1, 0, 0)


@pytest.mark.parametrize("input_fn", [records, batches])
def test_each_replica_that_reads_all_goes_on_where_the_checkpoint_left_it(roles, make, input_fn):
    estimator = make()
    first, second = SharedRows(), SharedRows()
    size = {"each_worker_reads_all": True, "num_workers": 1}
    train(roles, estimator, input_fn, 8, [first], **size)
    train(roles, estimator, input_fn, None, [second], **size)
    assert len(first.rows) == 8 * 4
    assert sorted([*first.rows, *second.rows]) == sorted([*range(NUM_RECORDS)] * 2)


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_job_that_goes_on_with_another_way_to_read_says_that_it_reads_from_the_start(roles, make, caplog):
    estimator = make()
    for max_steps, reads_all in ((5, False), (6, False), (8, True), (9, True)):
        train(roles, estimator, records, max_steps, each_worker_reads_all=reads_all, num_workers=1)
        assert bool(warnings_of(caplog)) is (max_steps == 8)
        caplog.clear()
    train(roles, estimator, records, 10, each_worker_reads_all=False, num_workers=1)
    assert warnings_of(caplog) == [
        "the train input is shared by the replicas (each_worker_reads_all=False), and up to step 9 it was not: it is "
        "read from its start, so examples that were used are used again"
    ]


def test_checkpoints_by_seconds_go_on_while_the_chief_waits_for_the_others(roles, make):
    config = RunConfig(tf_random_seed=1, save_checkpoints_secs=0.01)
    estimator = Estimator(regression, make().model_dir, config)
    deadline = Deadline(60)

    def until_saved(input_context):
        yield records().read(0, 0, 4)
        while input_context.input_pipeline_id and len(steps_of(estimator.model_dir)) < 4 and not deadline.has_passed:
            yield records().read(0, 0, 4)
            time.sleep(0.005)

    reports = train(roles, estimator, until_saved, None, each_worker_reads_all=True, num_workers=1)
    assert not deadline.has_passed, "the first checkpoint, one after the step of the chief, and two while it waits"
    assert reports["chief-0"]["statistics"]["pushes"] == 1


def part(input_context):
    rows = range(input_context.input_pipeline_id, NUM_RECORDS, input_context.num_input_pipelines)
    yield from (records().read(0, row, row + 1) for row in rows)


def test_a_generator_may_give_each_replica_a_part_of_its_own(roles, make):
    seen = SharedRows()
    train(roles, make(), part, None, [seen], each_worker_reads_all=True, num_workers=1)
    assert sorted(seen.rows) == list(range(NUM_RECORDS))


def part_of_the_chief(input_context):
    if not input_context.input_pipeline_id:
        yield from batches()


def test_the_part_of_a_worker_may_be_empty(roles, make):
    seen = SharedRows()
    reports = train(roles, make(), part_of_the_chief, None, [seen], each_worker_reads_all=True, num_workers=1)
    assert sorted(seen.rows) == list(range(NUM_RECORDS))
    assert {report["exit"] for report in reports.values()} == {"finished"}


def part_of_worker_1(input_context):
    if input_context.input_pipeline_id == 2:
        yield from batches()


@pytest.mark.parametrize("consistency", [Async(), Sync()])
def test_the_part_of_the_chief_may_be_empty(roles, make, consistency):
    seen = SharedRows()
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=5, consistency=consistency)
    estimator = Estimator(regression, make().model_dir, config)
    reports = train(roles, estimator, part_of_worker_1, None, [seen], each_worker_reads_all=True, num_workers=2)
    assert sorted(seen.rows) == list(range(NUM_RECORDS))
    assert steps_of(estimator.model_dir) == [0, 5, NUM_BATCHES]
    assert {report["exit"] for report in reports.values()} == {"finished"}
    pushes = {role: reports[role]["statistics"]["pushes"] for role in ("chief-0", "worker-0", "worker-1")}
    assert pushes == {"chief-0": 0, "worker-0": 0, "worker-1": NUM_BATCHES}


def test_a_job_without_any_batch_ends_with_an_error(roles, make):
    spec = TrainSpec(lambda: iter(()), each_worker_reads_all=True)
    words = r"^the input_fn for train returned no batch in any of the 2 replicas; check which part of the data each"
    with pytest.raises(InputError, match=words), Attempt(make(), spec, EvalSpec(records), num_workers=1) as attempt:
        roles.train(attempt.job())
    assert read_finished(attempt.model_dir) is None


def test_a_job_with_an_empty_part_of_the_chief_resumes_exactly(roles, make):
    first, second = SharedRows(), SharedRows()
    for seen, max_steps in ((first, 4), (second, None)):
        train(roles, make(), part_of_worker_1, max_steps, [seen], each_worker_reads_all=True, num_workers=2)
    assert len(first.rows) == 4 * 4
    assert sorted([*first.rows, *second.rows]) == list(range(NUM_RECORDS))


@pytest.mark.parametrize("each_worker_reads_all", [True, False])
def test_a_data_set_of_another_size_than_planned_is_refused(roles, make, each_worker_reads_all):
    sizes = iter([NUM_RECORDS, 12])

    def input_fn():
        return Dataset({"x": X[:12], "row": np.arange(12)}, Y[:12]).batch(4) if next(sizes) == 12 else records()

    words = "the train input is 12 records in chief-0, and was 40 records where the job was planned; return the same"
    with pytest.raises(InputError, match=words):
        train(roles, make(), input_fn, each_worker_reads_all=each_worker_reads_all)


def test_each_replica_is_prepared_and_the_chief_alone_sets_first_values(roles, make):
    calls = []

    def model_fn(features, labels, mode):
        scaffold = Scaffold(
            init_fn=lambda scaffold, session: calls.append("init"),
            local_init_fn=lambda session: calls.append(("local", session.is_chief)),
            ready_fn=lambda session: calls.append(("ready", session.is_chief)),
        )
        return replace(regression(features, labels, mode), scaffold=scaffold)

    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=50)
    estimator = Estimator(model_fn, make().model_dir, config)
    train(roles, estimator, records, None, each_worker_reads_all=True, num_workers=1)
    both = [(what, is_chief) for what in ("local", "ready") for is_chief in (True, False)]
    assert calls[0] == "init"
    assert sorted(calls[1:]) == sorted(both)


def test_replicas_stop_at_exactly_max_steps(roles, make):
    seen = SharedRows()
    estimator = make()
    train(roles, estimator, max_steps=23, hooks=[seen], num_workers=2, num_ps=2)
    assert steps_of(estimator.model_dir)[-1] == 23
    assert len(seen.steps) == 23
    assert max(seen.steps) == 23


def test_one_replica_ends_training_for_all(roles, make):
    class StopOnce(SessionRunHook):
        def after_run(self, run_context, run_values):
            if run_context.session.global_step >= 6:
                run_context.request_stop()

    estimator = make()
    reports = train(roles, estimator, max_steps=1_000_000, hooks=[StopOnce()], num_workers=1)
    assert 6 <= steps_of(estimator.model_dir)[-1] < 100
    assert {report["exit"] for report in reports.values()} == {"finished"}


def test_a_generator_that_fails_on_a_ps_fails_the_chief_with_its_words(roles, make):
    def failing():
        yield records().read(0, 0, 4)
        raise ZeroDivisionError("the second batch is missing")

    with pytest.raises(
        InputError, match=r"failing raised ZeroDivisionError in train mode on ps-0 at \S+\.py:\d+: the second batch is"
    ):
        train(roles, make(), failing)


def test_a_chief_that_is_told_to_end_does(roles, make):
    class StopTheRoles(SessionRunHook):
        def after_run(self, run_context, run_values):
            if run_context.session.global_step == 3:
                roles.stop.set()

    with pytest.raises(StoppedError, match="this role was stopped: the test is over"):
        train(roles, make(), max_steps=10_000_000, hooks=[StopTheRoles()])


def test_a_ps_has_room_for_all_replicas_of_a_large_job(roles, make):
    with Attempt(make(), TrainSpec(shuffled, 1), None, num_workers=150) as attempt:
        _, (dial,) = roles.start_ps(attempt.job())
        with contextlib.ExitStack() as stack:
            *_, last = [stack.enter_context(dial(10)) for _ in range(300)]
            with pytest.raises(RefusedError, match="before HELLO"):  # not that it is full
                last.request(Message(Kind.PULL), 10)


@pytest.mark.parametrize(
    ("transport", "num_ps", "pipeline_depth"), [("shm", 1, 0), ("shm", 1, 1), ("unix", 2, 0), ("tcp", 1, 1)]
)
def test_a_gradient_that_is_not_finite_reaches_no_ps_by_any_transport(
    roles, tmp_path, transport, num_ps, pipeline_depth
):
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=1, pipeline_depth=pipeline_depth)
    estimator = Estimator(spoilt("w", np.nan), str(tmp_path), config)
    with pytest.raises(
        NanGradientError, match=r"^chief-0 computed a gradient of variable 'w' that is nan at global_step 4"
    ):
        train(roles, estimator, records, num_ps=num_ps, transport=transport)
    assert 2 <= steps_of(estimator.model_dir)[-1] <= 4


@pytest.mark.parametrize(("transport", "listens"), [("auto", False), ("unix", False), ("shm", False), ("tcp", True)])
def test_a_ps_whose_roles_are_all_on_its_host_listens_on_no_network(roles, make, transport, listens):
    with Attempt(make(), TrainSpec(shuffled, 1), None, transport=transport) as attempt:
        job = attempt.job()
        _, (dial,) = roles.start_ps(job)
        assert [address.tcp_port is not None for address in roles.addresses] == [listens]
        dial(10).close()


def test_a_ps_with_a_role_on_another_host_listens_for_it(roles, make):
    with Attempt(make(), TrainSpec(shuffled, 1), None) as attempt:
        roles.start_ps(attempt.job(), is_alone=False)
        assert roles.addresses[0].tcp_port is not None
