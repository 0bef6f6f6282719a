from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from psflow.ps_runtime.server.updates import consistency_state
from psflow.ps_runtime.specs.consistency import CONSISTENCIES, Async, Consistency, _Facts


def test_a_consistency_that_forgets_a_fact_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match="Elastic does not state in_place, staleness_aware, gradients_per_update; see"):

        class Elastic(_Facts):
            name: ClassVar[str] = "elastic"
            may_pipeline: ClassVar[bool] = True


def test_no_consistency_takes_the_facts_of_another() -> None:
    with pytest.raises(TypeError, match="does not state name"):

        class Elastic(Async):
            pass


@pytest.mark.parametrize("kind", CONSISTENCIES.values())
def test_each_consistency_has_a_rule(kind: type[Consistency]) -> None:
    assert consistency_state(kind(), 2).has_room(0, 1, [])


def test_an_unknown_consistency_does_not_train_as_another() -> None:
    @dataclass(frozen=True)
    class Unknown:
        name: ClassVar[str] = "unknown"

    with pytest.raises(AssertionError, match="Unknown"):
        consistency_state(Unknown(), 2)  # type: ignore[arg-type]
