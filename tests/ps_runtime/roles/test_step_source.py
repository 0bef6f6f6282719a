"""In which order a replica pulls, reads, computes and pushes, and what it makes of each answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from psflow.ps_runtime.client.training import Grant, JobEnd
from psflow.ps_runtime.model.calls.gradients import StepResult
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.roles.step_source import InTurn, KnownIds, OneAhead, next_work
from psflow.ps_runtime.specs.input import RecordRange
from psflow.ps_runtime.specs.variables import TableSpec

SPEC = EstimatorSpec(ModeKeys.EVAL, loss=0.0)  # a source does not look at it
ITEMS = TableSpec("items", 10, 2, "float32", 0, {"name": "zeros"}, seed=1)


def ticket(number, global_step=0, staleness=0):
    return Grant(global_step, RecordRange(0, number, number + 1), staleness)


class Replica:
    """Client, reader and model_fn of a replica, which note what is asked of them.

    `further` and `pushed` are the answers to come, in their order.
    """

    def __init__(self, further=(), pushed=(), num_records=10):
        self.calls = []
        self.further, self.pushed = iter(further), iter(pushed)
        self.num_records = num_records
        self.variable = np.zeros(2)
        self.version = 0
        self.pushes = []

    def start_pull(self, rows=None):
        self.calls.append("pull " + " ".join(f"{name}{ids.tolist()}" for name, ids in (rows or {}).items()))

    def finish_pull(self):
        self.calls.append("pulled")
        self.version += 1
        self.variable += 1
        return (self.version,)

    def further_grant(self):
        self.calls.append("further")
        return next(self.further)

    def next_grant(self):
        self.calls.append("next")
        return next(self.further)

    def start_push(self, gradients, learning_rates, num_examples, versions):
        self.calls.append("push")
        self.pushes.append((gradients["w"].tolist(), learning_rates, num_examples, versions))

    def finish_push(self):
        return next(self.pushed)

    def read(self, records):
        self.calls.append(f"read {records.start}")
        return ({"items": np.array([records.start, 7])}, None) if records.start < self.num_records else None

    def call_model_fn(self, work):
        self.calls.append(f"model_fn {work.grant.records.start}")
        view = self.variable.view()
        view.flags.writeable = False
        return StepResult(SPEC, 0.0, {"w": view}, (0.1,), {}, {})

    def in_turn(self, tables=(), **features):
        return InTurn(self, self, self.call_model_fn, KnownIds(tables, features))

    def one_ahead(self, tables=(), **features):
        return OneAhead(self, self, self.call_model_fn, KnownIds(tables, features))

    def step(self, source, work):
        source.pull(work)
        pushed = source.push(work, source.compute(work), 5)
        return source.following(), pushed

    def noted(self):
        calls, self.calls = self.calls, []
        return [call.strip() for call in calls]


def test_in_turn_one_thing_follows_another():
    replica = Replica(pushed=[ticket(1, 1, 3), JobEnd(2)])
    source, work = replica.in_turn(), next_work(replica, replica, ticket(0))
    replica.noted()
    work, pushed = replica.step(source, work)
    assert replica.noted() == ["pull", "pulled", "model_fn 0", "push", "read 1"]
    assert pushed == (1, 3)
    work, pushed = replica.step(source, work)
    assert replica.noted() == ["pull", "pulled", "model_fn 1", "push"]
    assert (work, pushed) == (JobEnd(2), (2, None))
    assert replica.pushes == [([1.0, 1.0], (0.1,), 5, (1,)), ([2.0, 2.0], (0.1,), 5, (2,))]


def test_in_turn_pulls_the_rows_of_all_tables_beside_the_variables():
    replica = Replica(pushed=[JobEnd(1)])
    other = replace(ITEMS, name="other")
    source = replica.in_turn([ITEMS, other], items=[("items",)], other=[("items",)])
    work = next_work(replica, replica, ticket(3))
    replica.noted()
    replica.step(source, work)
    assert replica.noted() == ["pull items[3, 7] other[3, 7]", "pulled", "model_fn 3", "push"]


def test_in_turn_leaves_rows_to_model_fn_where_not_all_ids_are_known():
    replica = Replica(pushed=[JobEnd(1)])
    source = replica.in_turn([ITEMS, replace(ITEMS, name="other")], items=[("items",)])
    work = next_work(replica, replica, ticket(3))
    replica.noted()
    replica.step(source, work)
    assert replica.noted() == ["pull", "pulled", "model_fn 3", "push"]


def test_one_ahead_pulls_for_the_next_step_while_it_computes():
    replica = Replica(further=[ticket(1), None], pushed=[ticket(2, 1), JobEnd(3), JobEnd(3)])
    source, work = replica.one_ahead(), next_work(replica, replica, ticket(0))
    replica.noted()
    work, _ = replica.step(source, work)
    assert replica.noted() == ["pull", "pulled", "further", "read 1", "pull", "model_fn 0", "pulled", "push"]
    work, _ = replica.step(source, work)  # the answer to the push was the ticket after the next
    assert replica.noted() == ["read 2", "pull", "model_fn 1", "pulled", "push"]
    work, _ = replica.step(source, work)
    assert replica.noted() == ["further", "model_fn 2", "push"]
    assert work == JobEnd(3)


def test_a_gradient_that_is_a_variable_is_pushed_as_it_was_computed():
    replica = Replica(further=[ticket(1)], pushed=[None])
    replica.step(replica.one_ahead(), next_work(replica, replica, ticket(0)))
    assert replica.pushes == [([1.0, 1.0], (0.1,), 5, (1,))]


def test_without_a_further_ticket_one_ahead_is_in_turn():
    replica = Replica(further=[None, None], pushed=[ticket(1, 1, 2), JobEnd(2)])
    source, work = replica.one_ahead(), next_work(replica, replica, ticket(0))
    replica.noted()
    work, pushed = replica.step(source, work)
    assert replica.noted() == ["pull", "pulled", "further", "model_fn 0", "push", "read 1"]
    assert pushed == (1, 2)
    work, pushed = replica.step(source, work)
    assert replica.noted() == ["pull", "pulled", "further", "model_fn 1", "push"]
    assert (work, pushed) == (JobEnd(2), (2, None))


@pytest.mark.parametrize(("answer", "pushed"), [(ticket(2, 9, 4), (9, 4)), (None, (8, None)), (JobEnd(11), (11, None))])
def test_an_answer_says_how_far_the_job_is(answer, pushed):
    replica = Replica(further=[ticket(1, 8)], pushed=[answer])
    work, found = replica.step(replica.one_ahead(), next_work(replica, replica, ticket(0, 7)))
    assert found == pushed
    assert work.grant == ticket(1, 8)


@pytest.mark.parametrize(
    ("places", "calls"),
    [
        ([("items",)], ["pull items[0, 7]", "pulled", "further", "read 1", "pull items[1, 7]", "model_fn 0", "pulled"]),
        ([], ["pull", "pulled", "further", "read 1", "model_fn 0", "pull", "pulled"]),
        ([("items",), ("items",)], ["pull", "pulled", "further", "read 1", "model_fn 0", "pull", "pulled"]),
    ],
)
def test_rows_are_pulled_ahead_where_their_ids_are_known(places, calls):
    replica = Replica(further=[ticket(1)])
    source, work = replica.one_ahead([ITEMS], items=places), next_work(replica, replica, ticket(0))
    replica.noted()
    source.pull(work)
    source.compute(work)
    assert replica.noted() == calls


@pytest.mark.parametrize("kind", ["in_turn", "one_ahead"])
def test_a_ticket_that_was_not_pushed_for_comes_again(kind):
    replica = Replica(further=[None])
    source, work = getattr(replica, kind)(), next_work(replica, replica, ticket(0))
    source.pull(work)
    source.compute(work)
    assert source.following().grant == ticket(0)


def test_where_a_stream_has_ended_another_answer_is_asked_for():
    replica = Replica(further=[ticket(6), JobEnd(5)], num_records=5)
    assert next_work(replica, replica, ticket(5)) == JobEnd(5)
    assert replica.noted() == ["read 5", "next", "read 6", "next"]
