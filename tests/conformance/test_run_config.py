"""RunConfig: defaults, empty values, `replace`, and the messages of refusals."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from psflow import Async, BoundedStaleness, ClusterSpec, Hogwild, RunConfig, Server, Sync
from psflow.ps_runtime.errors import ArgumentTypeError, UsageError

DEFAULTS = {
    "model_dir": None,
    "tf_random_seed": None,
    "save_summary_steps": 100,
    "save_checkpoints_steps": None,
    "save_checkpoints_secs": 600,
    "keep_checkpoint_max": 5,
    "keep_checkpoint_every_n_hours": 10000,
    "log_step_count_steps": 100,
    "session_creation_timeout_secs": 7200,
}


@pytest.mark.parametrize(("name", "value"), DEFAULTS.items())
def test_a_default(name, value):
    assert getattr(RunConfig(), name) == value


ACCEPTED = [
    ("model_dir", "runs/a", "runs/a"),
    ("model_dir", Path("runs/a"), "runs/a"),
    ("model_dir", "s3://bucket/a", "s3://bucket/a"),
    ("model_dir", None, None),
    ("tf_random_seed", 0, 0),
    ("tf_random_seed", -1, -1),
    ("tf_random_seed", np.int32(7), 7),
    ("tf_random_seed", None, None),
    ("save_summary_steps", 1, 1),
    ("save_summary_steps", 1e3, 1000),
    ("save_summary_steps", None, None),
    ("save_summary_steps", 0, None),
    ("keep_checkpoint_max", 1, 1),
    ("keep_checkpoint_max", 0, 0),
    ("keep_checkpoint_max", None, None),
    ("keep_checkpoint_every_n_hours", 0.5, 0.5),
    ("keep_checkpoint_every_n_hours", 1, 1),
    ("log_step_count_steps", 1, 1),
    ("log_step_count_steps", None, None),
    ("session_creation_timeout_secs", 0.1, 0.1),
    ("session_creation_timeout_secs", 60, 60),
]


@pytest.mark.parametrize(("name", "given", "kept"), ACCEPTED)
@pytest.mark.parametrize("make", [lambda **given: RunConfig(**given), lambda **given: RunConfig().replace(**given)])
def test_what_a_setting_accepts(make, name, given, kept):
    assert getattr(make(**{name: given}), name) == kept
    assert type(getattr(make(**{name: given}), name)) is type(kept)


REFUSED = [
    ("model_dir", "", "model_dir should be a path or a URL, got ''; leave it out for a temporary directory"),
    ("save_summary_steps", -1, "save_summary_steps should be 0 or more, got -1"),
    ("save_checkpoints_steps", -1, "save_checkpoints_steps should be 0 or more, got -1"),
    ("save_checkpoints_secs", -0.5, "save_checkpoints_secs should be 0 or more, got -0.5"),
    ("keep_checkpoint_max", -1, "keep_checkpoint_max should be 0 or more, got -1"),
    ("keep_checkpoint_every_n_hours", 0, "keep_checkpoint_every_n_hours should be greater than 0, got 0"),
    ("keep_checkpoint_every_n_hours", -1, "keep_checkpoint_every_n_hours should be greater than 0, got -1"),
    ("log_step_count_steps", 0, "log_step_count_steps should be greater than 0, got 0"),
    ("log_step_count_steps", -5, "log_step_count_steps should be greater than 0, got -5"),
    ("session_creation_timeout_secs", 0, "session_creation_timeout_secs should be greater than 0, got 0"),
    ("session_creation_timeout_secs", -1, "session_creation_timeout_secs should be greater than 0, got -1"),
    ("pipeline_depth", 2, "pipeline_depth should be 0 or 1, got 2"),
]
OF_ANOTHER_TYPE = [
    ("model_dir", 3, "model_dir should be a str or None, got int 3"),
    ("tf_random_seed", 1.5, "tf_random_seed should be a whole number or None, got float 1.5"),
    ("tf_random_seed", "a", "tf_random_seed should be a whole number or None, got str 'a'"),
    ("save_summary_steps", "1", "save_summary_steps should be a whole number or None, got str '1'"),
    ("save_checkpoints_steps", 2.5, "save_checkpoints_steps should be a whole number or None, got float 2.5"),
    ("save_checkpoints_steps", True, "save_checkpoints_steps should be a whole number or None, got bool True"),
    ("save_checkpoints_secs", "5", "save_checkpoints_secs should be a number, got str '5'"),
    ("save_checkpoints_secs", float("nan"), "save_checkpoints_secs should be a number, got float nan"),
    ("keep_checkpoint_max", 2.5, "keep_checkpoint_max should be a whole number or None, got float 2.5"),
    ("keep_checkpoint_every_n_hours", None, "keep_checkpoint_every_n_hours should be a number, got None"),
    ("log_step_count_steps", 2.5, "log_step_count_steps should be a whole number or None, got float 2.5"),
    ("session_creation_timeout_secs", None, "session_creation_timeout_secs should be a number, got None"),
]


@pytest.mark.parametrize(("name", "given", "fault"), REFUSED)
def test_a_value_that_a_setting_refuses(name, given, fault):
    with pytest.raises(ValueError, match=re.escape(fault)) as caught:
        RunConfig(**{name: given})
    assert (type(caught.value), caught.value.faults) == (UsageError, (fault,))


@pytest.mark.parametrize(("name", "given", "fault"), OF_ANOTHER_TYPE)
def test_a_type_that_a_setting_refuses(name, given, fault):
    with pytest.raises(TypeError) as caught:
        RunConfig(**{name: given})
    assert (type(caught.value), caught.value.faults) == (ArgumentTypeError, (fault,))


@pytest.mark.parametrize(("name", "given", "fault"), REFUSED + OF_ANOTHER_TYPE)
def test_replace_refuses_what_the_constructor_refuses(name, given, fault):
    with pytest.raises(UsageError) as caught:
        RunConfig().replace(**{name: given})
    assert caught.value.faults == (fault,)


NO_CHECKPOINTS = {"save_checkpoints_steps": None, "save_checkpoints_secs": None}


@pytest.mark.parametrize(
    ("given", "steps", "secs"),
    [
        ({}, None, 600),
        ({"save_checkpoints_steps": 5}, 5, None),
        ({"save_checkpoints_secs": 5}, None, 5),
        ({"save_checkpoints_secs": 2.5}, None, 2.5),
        ({"save_checkpoints_steps": None}, None, None),
        ({"save_checkpoints_secs": None}, None, None),
        (NO_CHECKPOINTS, None, None),
        ({"save_checkpoints_steps": 0}, None, None),
        ({"save_checkpoints_secs": 0}, None, None),
        ({"save_checkpoints_steps": 5, "save_checkpoints_secs": None}, 5, None),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": 5}, None, 5),
    ],
)
def test_checkpoints_by_steps_or_secs_or_none(given, steps, secs):
    config = RunConfig(**given)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (steps, secs)
    assert config.saves_checkpoints == (steps is not None or secs is not None)


@pytest.mark.parametrize(
    ("first", "changes", "steps", "secs"),
    [
        ({}, {"save_checkpoints_steps": 5}, 5, None),
        ({}, {"save_checkpoints_secs": 5}, None, 5),
        ({}, {"save_checkpoints_steps": None}, None, 600),
        ({}, {"save_checkpoints_secs": None}, None, None),
        ({}, NO_CHECKPOINTS, None, None),
        ({"save_checkpoints_steps": 5}, {"save_checkpoints_secs": 7}, None, 7),
        ({"save_checkpoints_steps": 5}, {"save_checkpoints_secs": None}, 5, None),
        ({"save_checkpoints_steps": 5}, {"save_checkpoints_steps": None}, None, None),
        ({"save_checkpoints_steps": 5}, {"save_checkpoints_steps": 6}, 6, None),
        ({"save_checkpoints_secs": 5}, {"save_checkpoints_steps": 6}, 6, None),
        (NO_CHECKPOINTS, {"save_checkpoints_steps": 3}, 3, None),
        (NO_CHECKPOINTS, {"tf_random_seed": 3}, None, None),
        ({"save_checkpoints_steps": 5}, {"tf_random_seed": 3}, 5, None),
    ],
)
def test_replace_of_one_of_steps_and_secs_takes_the_place_of_the_other(first, changes, steps, secs):
    config = RunConfig(**first).replace(**changes)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (steps, secs)


@pytest.mark.parametrize("make", [RunConfig, RunConfig().replace, RunConfig(save_checkpoints_steps=1).replace])
@pytest.mark.parametrize("secs", [5, 0])
def test_both_steps_and_secs_are_refused(make, secs):
    with pytest.raises(ValueError, match=r"^give save_checkpoints_steps or save_checkpoints_secs, not both$"):
        make(save_checkpoints_steps=5, save_checkpoints_secs=secs)


@pytest.mark.parametrize(
    "name", ["unknown", "save_checkpoint_steps", "replace", "saves_checkpoints", "task_type", "_task"]
)
def test_replace_knows_settings_only(name):
    with pytest.raises(ValueError, match=f"^RunConfig has no '{name}'"):
        RunConfig().replace(**{name: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        RunConfig(**{name: 1})


def test_replace_leaves_the_first_one_as_it_is():
    first = RunConfig(model_dir="a", tf_random_seed=1)
    second = first.replace(tf_random_seed=2)
    assert (first.tf_random_seed, second.tf_random_seed, second.model_dir) == (1, 2, "a")
    assert first.replace() == first


def test_a_configuration_does_not_change():
    with pytest.raises(AttributeError):
        RunConfig().model_dir = "a"


def test_the_first_five_settings_have_a_place_and_no_other():
    config = RunConfig("a", 1, 10, None, 5)
    assert (config.model_dir, config.tf_random_seed, config.save_summary_steps) == ("a", 1, 10)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (None, 5)
    with pytest.raises(TypeError, match="positional arguments"):
        RunConfig("a", 1, 10, None, 5, 3)


@pytest.mark.parametrize("consistency", [Async(), BoundedStaleness(2), Hogwild()])
@pytest.mark.parametrize("depth", [0, 1])
def test_what_takes_stale_gradients_may_pull_ahead(consistency, depth):
    config = RunConfig(consistency=consistency, pipeline_depth=depth)
    assert (config.consistency, config.pipeline_depth) == (consistency, depth)


@pytest.mark.parametrize(
    ("depth", "fault"), [(1, "sync needs pipeline_depth 0, got 1"), (2, "pipeline_depth should be 0 or 1, got 2")]
)
def test_sync_does_not_pull_ahead(depth, fault):
    assert RunConfig(consistency=Sync()).pipeline_depth == 0
    with pytest.raises(UsageError) as caught:
        RunConfig(consistency=Sync(), pipeline_depth=depth)
    [said] = caught.value.faults
    assert said.startswith(fault)


def test_all_faults_come_in_one_error():
    with pytest.raises(ArgumentTypeError) as caught:
        RunConfig(model_dir=3, tf_random_seed="a", log_step_count_steps=0, keep_checkpoint_max=-1)
    assert len(caught.value.faults) == 4


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (Server({"worker": ["a:1"]}, "worker", 0), "Server <"),
        (ClusterSpec({"worker": ["a:1"]}), "ClusterSpec ClusterSpec"),
        ({"worker": ["a:1"]}, "dict {'worker'"),
        ("a:1", "str 'a:1'"),
    ],
)
def test_a_cluster_is_that_of_a_process(cluster, words):
    expected = re.escape(f"cluster should be a ClusterTask, as Server(...).target is, or None, got {words}")
    with pytest.raises(ArgumentTypeError, match=f"^{expected}"):
        RunConfig(cluster=cluster)
