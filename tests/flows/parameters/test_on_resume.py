"""An unclassified key is an error at its definition, not a change that is resumed silently."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from psflow.flows.parameters.base import FlowParameters, OnResume, check_declared, declared
from psflow.flows.parameters.train import TrainParameters


class _Below(FlowParameters):
    known: Annotated[int, OnResume.FREE] = Field(1)
    forgotten: int = Field(1)


class _Nested(TrainParameters):
    below: _Below = Field(_Below())


class _Covered(TrainParameters):
    below: Annotated[_Below, OnResume.LEARNED] = Field(_Below())


class _Entries(TrainParameters):
    entries: dict[str, _Below | None] = Field(default_factory=dict)


@pytest.mark.parametrize(("model", "key"), [(_Nested, "below.forgotten"), (_Entries, "entries.forgotten")])
def test_a_key_that_declares_nothing_is_named(model: type[TrainParameters], key: str) -> None:
    with pytest.raises(TypeError, match=rf"{model.__name__}: the key {key} does not declare .*OnResume\.LEARNED"):
        check_declared(model)


def test_a_declaration_covers_the_keys_below_it() -> None:
    check_declared(_Covered)
    assert declared(_Covered, "below.known") is OnResume.LEARNED


def test_a_change_of_a_key_that_declares_nothing_is_not_judged() -> None:
    with pytest.raises(TypeError, match=r"the key forgotten does not declare"):
        declared(_Nested, "below.forgotten")


def test_of_several_readings_of_a_key_the_strictest_counts() -> None:
    assert declared(TrainParameters, "evals.a.throttle_secs.steps") is OnResume.MEASURED
    assert declared(TrainParameters, "evals.a.input.params.throttle_secs") is OnResume.MEASURED
    assert declared(TrainParameters, "evals") is OnResume.FREE
