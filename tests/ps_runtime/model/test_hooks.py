"""Fetches and stop requests of hooks."""

from typing import Any, NamedTuple

import pytest

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.hooks.base import (
    Coordinator,
    HookCalls,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    pick,
)


class Pair(NamedTuple):
    first: Any
    second: Any


VALUES = {"loss": 0.5, "global_step": 3, "dense/kernel": [1, 2]}


@pytest.mark.parametrize(
    ("fetches", "results"),
    [
        ("loss", 0.5),
        (["global_step", "loss"], [3, 0.5]),
        (("loss",), (0.5,)),
        (Pair("loss", ["global_step"]), Pair(0.5, [3])),
        ({"a": "dense/kernel", "b": "loss"}, {"a": [1, 2], "b": 0.5}),
        ((), ()),
        ({}, {}),
    ],
)
def test_results_have_the_structure_of_the_fetches(fetches, results):
    found = pick(fetches, VALUES)
    assert found == results
    assert type(found) is type(results)


@pytest.mark.parametrize("fetches", ["dense/kernal", ["loss", "dense/kernal"], {"k": "dense/kernal"}])
def test_an_unknown_name_is_refused_with_the_near_one(fetches):
    with pytest.raises(UsageError, match=r"session.run fetches 'dense/kernal', .*did you mean 'dense/kernel'"):
        pick(fetches, VALUES)


@pytest.mark.parametrize("fetches", ["items", ["loss", "item"]])
def test_a_table_is_not_fetched_and_told_to_be_one(fetches):
    with pytest.raises(
        UsageError, match=r"session.run fetches 'items?', .*'items' is a table: return the looked-up rows"
    ):
        pick(fetches, VALUES, ["users", "items"])


def test_a_hook_is_called_for_what_it_does_also_if_only_one_object_does_it():
    calls = []

    class Before(SessionRunHook):
        def before_run(self, run_context):
            calls.append("before")
            return SessionRunArgs("loss")

    class After(SessionRunHook):
        def after_run(self, run_context, run_values):
            calls.append(run_values.results)

    patched = SessionRunHook()
    patched.after_run = lambda context, values: calls.append("patched")
    hooks = HookCalls([SessionRunHook(), Before(), After(), patched], None)
    hooks.before_run(SessionRunArgs("loss"))
    hooks.after_run(VALUES)
    assert calls == ["before", None, "patched"]


def test_a_hook_may_choose_its_methods_when_it_begins():
    calls = []

    class Late(SessionRunHook):
        def begin(self):
            self.after_run = lambda context, values: calls.append("late")

    hooks = HookCalls([Late()], None)
    hooks.begin()
    hooks.before_run(SessionRunArgs("loss"))
    hooks.after_run(VALUES)
    assert calls == ["late"]


def test_what_a_hook_fetches_must_exist_also_if_it_does_not_look_at_it():
    class Before(SessionRunHook):
        def before_run(self, run_context):
            return SessionRunArgs("lost")

    hooks = HookCalls([Before()], None)
    hooks.before_run(SessionRunArgs("loss"))
    with pytest.raises(UsageError, match="the hook Before fetches 'lost'"):
        hooks.after_run(VALUES)


def test_the_first_reason_to_stop_stays():
    coordinator = Coordinator()
    context = SessionRunContext(SessionRunArgs(), None, coordinator)
    assert not context.stop_requested
    coordinator.request_stop("enough")
    context.request_stop()
    assert context.stop_requested
    assert coordinator.stop_reason == "enough"


def test_a_hook_that_overrides_nothing_does_nothing():
    hook = SessionRunHook()
    hook.begin()
    assert hook.before_run(SessionRunContext(SessionRunArgs(), None)) is None
    assert SessionRunArgs().fetches == ()
