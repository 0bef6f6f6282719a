from __future__ import annotations

import pytest

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Hogwild, Sync
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.wire_format import WireFormat


def test_defaults_are_the_references():
    config = RunConfig()
    assert (config.save_checkpoints_secs, config.save_checkpoints_steps) == (600, None)
    assert (config.model_dir, config.tf_random_seed, config.keep_checkpoint_max) == (None, None, 5)
    assert (config.save_summary_steps, config.log_step_count_steps) == (100, 100)
    assert (config.keep_checkpoint_every_n_hours, config.session_creation_timeout_secs) == (10000, 7200)


@pytest.mark.parametrize(
    ("given", "secs", "steps"),
    [
        ({"save_checkpoints_steps": 10}, None, 10),
        ({"save_checkpoints_secs": 5}, 5, None),
        ({"save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_secs": None, "save_checkpoints_steps": None}, None, None),
        ({"save_checkpoints_secs": None, "save_checkpoints_steps": 3}, None, 3),
    ],
)
def test_checkpoints_are_saved_by_steps_or_by_secs_or_not_at_all(given, secs, steps):
    config = RunConfig(**given)
    assert (config.save_checkpoints_secs, config.save_checkpoints_steps) == (secs, steps)
    assert config.saves_checkpoints == (secs is not None or steps is not None)


def test_save_checkpoints_steps_none_alone_saves_nothing():
    assert not RunConfig(save_checkpoints_steps=None).saves_checkpoints


def test_all_faults_come_at_once():
    with pytest.raises(UsageError) as caught:
        RunConfig(save_checkpoints_steps=0, save_checkpoints_secs=-1, save_summary_steps=-2, keep_checkpoint_max=-1)
    assert caught.value.faults == (
        "give save_checkpoints_steps or save_checkpoints_secs, not both",
        "save_summary_steps should be 0 or more, got -2",
        "keep_checkpoint_max should be 0 or more, got -1",
        "save_checkpoints_secs should be 0 or more, got -1",
    )


def test_a_run_is_asynchronous_and_not_pipelined_unless_it_says_so():
    assert (RunConfig().consistency, RunConfig().pipeline_depth) == (Async(), 0)


@pytest.mark.parametrize("depth", [-1, 2])
def test_a_pipeline_has_one_stage_ahead_at_most(depth):
    with pytest.raises(UsageError, match=f"^pipeline_depth should be 0 or 1, got {depth}$"):
        RunConfig(pipeline_depth=depth)


@pytest.mark.parametrize("consistency", [Async(), BoundedStaleness(0), Hogwild()])
def test_what_takes_stale_gradients_can_be_pipelined(consistency):
    assert RunConfig(consistency=consistency, pipeline_depth=1).consistency == consistency


def test_sync_cannot_be_pipelined():
    with pytest.raises(UsageError, match=r"^sync needs pipeline_depth 0, got 1: .* would be dropped$"):
        RunConfig(consistency=Sync(), pipeline_depth=1)
    with pytest.raises(UsageError, match=r"^sync needs pipeline_depth 0"):
        RunConfig(pipeline_depth=1).replace(consistency=Sync(2))


def test_replace_knows_its_names():
    config = RunConfig(save_checkpoints_steps=10, model_dir="a")
    assert config.replace(model_dir="b") == RunConfig(save_checkpoints_steps=10, model_dir="b")
    with pytest.raises(UsageError, match="RunConfig has no 'model_dri'; did you mean 'model_dir'"):
        config.replace(model_dri="b")


def test_replace_changes_how_checkpoints_are_saved():
    config = RunConfig().replace(save_checkpoints_secs=None, save_checkpoints_steps=5)
    assert (config.save_checkpoints_secs, config.save_checkpoints_steps) == (None, 5)


def test_what_is_no_wire_format_is_refused():
    assert RunConfig().wire == WireFormat("float32", "float32")
    with pytest.raises(UsageError, match=r"wire should be a WireFormat, got str 'bfloat16'"):
        RunConfig(wire="bfloat16")


def test_what_is_no_consistency_is_refused():
    with pytest.raises(UsageError, match=r"consistency should be one of Async\(\), .*Hogwild\(\), got str 'sync'"):
        RunConfig(consistency="sync")
