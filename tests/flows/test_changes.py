from __future__ import annotations

from pathlib import Path

import pytest

from flows.changes import changes
from flows.parameters import TrainParameters, parse_parameters
from flows.resolved_config import resolve
from ps_runtime.config.files import load

DIGITS = str(Path(__file__).parents[2] / "conf" / "digits.yaml")


def changed(*overrides: str) -> list[tuple[str, bool]]:
    def parsed(*more: str) -> tuple[TrainParameters, dict[str, object]]:
        loaded = load([DIGITS], more)
        return resolve(parse_parameters(loaded.values, loaded.origins), seed=7), dict(loaded.origins)

    now, origins = parsed(*overrides)
    return [(str(change), change.alters_the_job) for change in changes(parsed()[0], now, origins)]  # type: ignore[arg-type]


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
    assert found["input.train.path: null -> s3://bucket/t.csv (command line)"]
