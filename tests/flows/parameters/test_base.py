from __future__ import annotations

from typing import Literal

from pydantic import Field

from psflow.flows.parameters.base import FlowParameters
from psflow.flows.parameters.train import TrainParameters


class Kind(FlowParameters):
    name: Literal["one"]
    size: Literal[1, 2] = 1
    sides: Literal["all"] | tuple[str, ...] | None = None
    marks: dict[str, tuple[int, ...] | Literal["none"]] = Field(default_factory=dict)


def test_a_form_offers_the_one_value_of_a_field_that_can_have_no_other() -> None:
    fields = Kind.model_json_schema()["properties"]
    assert fields["name"] == {"type": "string", "title": "Name", "default": "one", "enum": ["one"]}
    assert fields["size"]["enum"] == [1, 2]


def test_a_form_offers_the_one_value_that_is_an_alternative_to_others() -> None:
    fields = Kind.model_json_schema()["properties"]
    assert fields["sides"]["anyOf"][0] == {"type": "string", "enum": ["all"]}
    assert fields["marks"]["additionalProperties"]["anyOf"][1] == {"type": "string", "enum": ["none"]}


def test_no_field_of_a_training_has_a_constant_which_forms_would_leave_out() -> None:
    assert "'const'" not in str(TrainParameters.model_json_schema())
