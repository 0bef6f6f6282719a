"""The strategy of parameter servers: which task gives values, and saves."""

from __future__ import annotations

import pytest

from psflow.ps_runtime.specs.strategy import ParameterServerStrategy, Strategy
from psflow.ps_runtime.specs.task_facts import ClusterSpec

WITH_CHIEF = ClusterSpec({"chief": ["c:1"], "worker": ["w:1", "w:2"], "ps": ["p:1"]})
WITHOUT = ClusterSpec({"worker": ["w:1", "w:2"], "ps": ["p:1"]})


@pytest.mark.parametrize(
    ("cluster", "task_type", "task_id", "is_chief"),
    [
        (WITH_CHIEF, "chief", 0, True),
        (WITH_CHIEF, "worker", 0, False),
        (WITH_CHIEF, "worker", 1, False),
        (WITH_CHIEF, "ps", 0, False),
        (WITHOUT, "worker", 0, True),
        (WITHOUT, "worker", 1, False),
        (WITHOUT, "ps", 0, False),
        (WITHOUT, None, None, True),
        (None, None, None, True),
        (None, "worker", 1, True),
    ],
)
def test_the_chief_gives_values_and_saves(
    cluster: ClusterSpec | None, task_type: str | None, task_id: int | None, is_chief: bool
) -> None:
    strategy = ParameterServerStrategy()
    assert strategy.extended.should_checkpoint  # no cluster is configured
    strategy.configure(None, cluster, task_type, task_id)
    extended = strategy.extended
    answers = (extended.experimental_should_init, extended.should_checkpoint, extended.should_save_summary)
    assert answers == (is_chief,) * 3
    strategy.configure()
    assert extended.experimental_should_init


def test_it_is_one_and_each_replica_calls() -> None:
    assert isinstance(ParameterServerStrategy(), Strategy)
    assert ParameterServerStrategy().extended.experimental_between_graph
