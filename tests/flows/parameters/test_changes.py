from __future__ import annotations

from pathlib import Path

import pytest

from psflow.flows.parameters.configuration import resolve
from psflow.flows.parameters.train import parse_parameters
from psflow.flows.planning.restart import changes
from psflow.ps_runtime.config.files import load

DIGITS = str(Path(__file__).parents[3] / "conf" / "digits.yaml")


def changed(*overrides: str, before: tuple[str, ...] = ()) -> list[tuple[str, bool]]:
    """Return each change that `overrides` make, and whether it alters the job."""
    loaded = [load([DIGITS], more) for more in (before, (*before, *overrides))]
    old, new = (resolve(parse_parameters(each.values, each.origins), seed=7) for each in loaded)
    return [(str(change), change.alters_the_job) for change in changes(old, new, loaded[1])]


def test_nothing_has_changed() -> None:
    assert changed("experiment=digits") == []


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("seed=8", "seed: 7 -> 8 (command line)"),
        ("model.params.hidden_units=[64, 3]", "model.params.hidden_units: [64] -> [64, 3] (command line)"),
        (
            "model.params.optimizer.learning_rate=1e-2",
            "model.params.optimizer.learning_rate: 0.003 -> 0.01 (command line)",
        ),
        ("input.train.batch_size=16", "input.train.batch_size: 32 -> 16 (command line)"),
        ("input.eval.split=all", "input.eval.split: test -> all (command line)"),
        ("eval.steps=2", "eval.steps: null -> 2 (command line)"),
        ("pipeline_depth=1", "pipeline_depth: 0 -> 1 (command line)"),
        ("wire.gradients=bfloat16", "wire.gradients: float32 -> bfloat16 (command line)"),
        (
            "train.consistency={name: async, staleness_aware: true}",
            "train.consistency.staleness_aware: false -> true (command line)",
        ),
    ],
)
def test_a_key_that_alters_the_job(override: str, line: str) -> None:
    assert changed(override) == [(line, True)]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("train.max_steps=3", "train.max_steps: 1500 -> 3 (command line)"),
        ("train.keep_checkpoint_max=0", "train.keep_checkpoint_max: 5 -> 0 (command line)"),
        ("cluster.workers=3", "cluster.workers: 1 -> 3 (command line)"),
        ("transport=tcp", "transport: auto -> tcp (command line)"),
        ("eval.throttle_secs=5.0", "eval.throttle_secs: 0.0 -> 5.0 (command line)"),
        ("best.mode=min", "best.mode: max -> min (command line)"),
    ],
)
def test_a_key_that_says_how_long_or_where(override: str, line: str) -> None:
    assert changed(override) == [(line, False)]


def test_keys_that_come_and_go_and_paths_without_their_secrets() -> None:
    found = dict(changed("model.params.optimizer={name: Momentum, learning_rate: 0.003, momentum: 0.9}"))
    assert found["model.params.optimizer.momentum: not set -> 0.9 (command line)"]
    assert not any("learning_rate" in line for line in found)
    found = dict(changed("input.train={format: csv, path: 's3://key:secret@bucket/t.csv', label: y}"))
    assert found["input.train.path: not set -> s3://bucket/t.csv (command line)"]


def test_a_further_evaluation_may_come_and_go_but_not_become_another() -> None:
    small = "evals={small: {input: {format: digits, split: test}}}"
    large = "evals={small: {input: {format: digits, split: all}}}"
    assert {alters for _, alters in changed(small)} == {False}
    assert {alters for _, alters in changed("evals={}", before=(small,))} == {False}
    assert changed(large, before=(small,)) == [("evals.small.input.split: test -> all (command line)", True)]


@pytest.mark.parametrize(
    ("override", "line", "alters"),
    [
        ("evals.a.b.steps=3", "evals.a.b.steps: null -> 3", True),
        ("evals.a.b.throttle_secs=3.0", "evals.a.b.throttle_secs: 0.0 -> 3.0", False),
    ],
)
def test_the_name_of_an_evaluation_may_have_dots(override: str, line: str, alters: bool) -> None:
    kept = "throttle_secs: 3.0" if "throttle" in override else "steps: 3"
    before = "evals={a.b: {input: {format: digits, split: test}}}"
    now = f"evals={{a.b: {{input: {{format: digits, split: test}}, {kept}}}}}"
    assert changed(now, before=(before,)) == [(line, alters)]
