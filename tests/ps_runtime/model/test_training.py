from __future__ import annotations

from typing import Any

import pytest

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.export.exporters import FinalExporter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec, all_eval_specs


def input_fn() -> Any: ...


def test_defaults_are_the_references():
    assert TrainSpec(input_fn).max_steps is None
    spec = EvalSpec(input_fn)
    assert (spec.steps, spec.name, spec.start_delay_secs, spec.throttle_secs) == (100, None, 120, 600)
    assert spec.all_exporters == ()


def test_one_exporter_or_many():
    one, two = FinalExporter("one"), FinalExporter("two")
    assert EvalSpec(input_fn, exporters=one).all_exporters == (one,)
    assert EvalSpec(input_fn, exporters=[one, two]).all_exporters == (one, two)


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        ({"input_fn": 7}, ("TrainSpec.input_fn should be callable, got int 7",)),
        ({"input_fn": input_fn, "max_steps": 0}, ("TrainSpec.max_steps should be greater than 0, got 0",)),
        (
            {"input_fn": None, "max_steps": -1},
            (
                "TrainSpec.input_fn should be callable, got None",
                "TrainSpec.max_steps should be greater than 0, got -1",
            ),
        ),
    ],
)
def test_what_a_train_spec_refuses(arguments, faults):
    with pytest.raises(UsageError) as caught:
        TrainSpec(**arguments)
    assert caught.value.faults == faults


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"steps": 0}, "EvalSpec.steps should be greater than 0, got 0"),
        ({"throttle_secs": -1}, "EvalSpec.throttle_secs should be 0 or more, got -1"),
        ({"start_delay_secs": -0.5}, "EvalSpec.start_delay_secs should be 0 or more, got -0.5"),
        ({"exporters": [FinalExporter("a"), FinalExporter("b"), FinalExporter("a")]}, "two exporters are named 'a'"),
        ({"input_fn": "x"}, "EvalSpec.input_fn should be callable, got str 'x'"),
    ],
)
def test_what_an_eval_spec_refuses(arguments, fault):
    with pytest.raises(UsageError) as caught:
        EvalSpec(**({"input_fn": input_fn} | arguments))
    assert caught.value.faults == (fault,)


def test_one_or_several_eval_specs_or_none():
    first, second = EvalSpec(input_fn), EvalSpec(input_fn, name="second")
    assert all_eval_specs(None) == all_eval_specs([]) == ()
    assert all_eval_specs(first) == (first,)
    assert all_eval_specs([first, second]) == (first, second)


def test_the_names_of_eval_specs_tell_them_apart():
    with pytest.raises(UsageError, match=r"^two EvalSpecs have no name; names tell their results apart$"):
        all_eval_specs([EvalSpec(input_fn), EvalSpec(input_fn)])
    with pytest.raises(UsageError, match=r"^two EvalSpecs are named 'a'"):
        all_eval_specs([EvalSpec(input_fn, name="a"), EvalSpec(input_fn), EvalSpec(input_fn, name="a")])


def test_only_the_first_eval_spec_has_exporters():
    second = EvalSpec(input_fn, name="second", exporters=FinalExporter("latest"))
    with pytest.raises(UsageError, match=r"^EvalSpec 'second' has exporters, but only those of the first EvalSpec"):
        all_eval_specs([EvalSpec(input_fn), second])
