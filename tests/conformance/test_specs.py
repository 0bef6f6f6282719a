"""TrainSpec, EvalSpec and EstimatorSpec: defaults, empty values, and the messages of refusals."""

from __future__ import annotations

import inspect
import re

import autograd.numpy as anp
import numpy as np
import pytest

import psflow
from psflow import (
    BestExporter,
    CheckpointSaverListener,
    Dataset,
    EstimatorSpec,
    EvalSpec,
    FinalExporter,
    GradientDescent,
    LatestExporter,
    SessionRunHook,
    StopAtStepHook,
    TrainSpec,
    metrics,
    train_and_evaluate,
)
from psflow.ps_runtime.errors import ArgumentTypeError, InputError, ModelFnError, ModelFnTypeError, UsageError
from tests.conformance.programs import line, rows

HOOK, LISTENER = SessionRunHook(), CheckpointSaverListener()
OP = GradientDescent(0.1).apply_gradients({})
NOTHING = [None, (), [], iter(())]


@pytest.mark.parametrize(
    ("of", "places"),
    [
        (psflow.Estimator, "model_fn, model_dir=None, config=None, params=None, warm_start_from=None"),
        (psflow.Estimator.train, "self, input_fn, hooks=None, steps=None, max_steps=None, saving_listeners=None"),
        (psflow.Estimator.evaluate, "self, input_fn, steps=None, hooks=None, checkpoint_path=None, name=None"),
        (
            psflow.Estimator.predict,
            "self, input_fn, predict_keys=None, hooks=None, checkpoint_path=None, yield_single_examples=True",
        ),
        (psflow.train_and_evaluate, "estimator, train_spec, eval_spec"),
        (psflow.EstimatorSpec, "mode, predictions=None, loss=None, train_op=None"),
        (psflow.StopAtStepHook, "num_steps=None, last_step=None"),
        (psflow.CheckpointSaverHook, "checkpoint_dir=None, save_secs=None, save_steps=None"),
        (psflow.LoggingTensorHook, "tensors, every_n_iter=None, every_n_secs=None, at_end=False, formatter=None"),
        (psflow.StepCounterHook, "every_n_steps=100, every_n_secs=None"),
        (psflow.SummarySaverHook, "save_steps=None, save_secs=None"),
        (psflow.NanTensorHook, "loss_tensor='loss', fail_on_nan_loss=True"),
        (psflow.GlobalStepWaiterHook, "wait_until_step"),
        (psflow.FinalOpsHook, "final_ops"),
        (psflow.make_early_stopping_hook, "estimator, should_stop_fn, run_every_secs=60, run_every_steps=None"),
        (psflow.stop_if_higher_hook, "estimator, metric_name, threshold, eval_dir=None, min_steps=0"),
        (psflow.stop_if_lower_hook, "estimator, metric_name, threshold, eval_dir=None, min_steps=0"),
        (
            psflow.stop_if_no_increase_hook,
            "estimator, metric_name, max_steps_without_increase, eval_dir=None, min_steps=0",
        ),
        (
            psflow.stop_if_no_decrease_hook,
            "estimator, metric_name, max_steps_without_decrease, eval_dir=None, min_steps=0",
        ),
    ],
)
def test_arguments_have_the_places_and_defaults_of_the_original(of, places):
    empty = inspect.Parameter.empty
    named = [
        name if argument.default is empty else f"{name}={argument.default!r}"
        for name, argument in inspect.signature(of).parameters.items()
        if argument.kind is argument.POSITIONAL_OR_KEYWORD
    ]
    assert ", ".join(named[: len(places.split(", "))]) == places


def test_a_train_spec_needs_an_input_alone():
    spec = TrainSpec(rows)
    assert (spec.input_fn, spec.max_steps, spec.hooks, spec.saving_listeners) == (rows, None, (), ())
    assert spec.each_worker_reads_all is False


def test_an_eval_spec_needs_an_input_alone():
    spec = EvalSpec(rows)
    assert (spec.input_fn, spec.steps, spec.name, spec.all_exporters) == (rows, 100, None, ())
    assert (spec.start_delay_secs, spec.throttle_secs) == (120, 600)


@pytest.mark.parametrize("field", ["hooks", "saving_listeners"])
@pytest.mark.parametrize("nothing", NOTHING)
def test_none_and_any_empty_sequence_are_no_hooks_and_no_listeners(field, nothing):
    assert getattr(TrainSpec(rows, **{field: nothing}), field) == ()


@pytest.mark.parametrize("nothing", NOTHING)
def test_none_and_any_empty_sequence_are_no_exporters(nothing):
    assert EvalSpec(rows, exporters=nothing).all_exporters == ()


@pytest.mark.parametrize("several", [list, tuple, iter])
def test_several_are_kept_in_their_order_whatever_they_come_in(several):
    hooks = [HOOK, StopAtStepHook(last_step=3), SessionRunHook()]
    assert TrainSpec(rows, hooks=several(hooks)).hooks == tuple(hooks)
    assert TrainSpec(rows, saving_listeners=several([LISTENER])).saving_listeners == (LISTENER,)
    exporters = [FinalExporter("b"), LatestExporter("a")]
    assert EvalSpec(rows, exporters=several(exporters)).all_exporters == tuple(exporters)


@pytest.mark.parametrize("exporter", [FinalExporter("a"), LatestExporter("a"), BestExporter()])
def test_one_exporter_stands_for_itself(exporter):
    assert EvalSpec(rows, exporters=exporter).all_exporters == (exporter,)


@pytest.mark.parametrize("steps", [1, 10, 1e4, np.int64(7), np.float32(2), None])
def test_steps_are_whole_numbers_of_any_type(steps):
    wanted = None if steps is None else int(steps)
    for given in (TrainSpec(rows, max_steps=steps).max_steps, EvalSpec(rows, steps=steps).steps):
        assert given == wanted
        assert type(given) is type(wanted)


@pytest.mark.parametrize("name", ["", "a", "train set", None])
def test_a_text_names_an_evaluation(name):
    assert EvalSpec(rows, name=name).name == name


@pytest.mark.parametrize("secs", [0, 0.5, 600, np.float32(3), float("inf")])
def test_secs_are_any_number_from_0(secs):
    spec = EvalSpec(rows, start_delay_secs=secs, throttle_secs=secs)
    assert spec.start_delay_secs == spec.throttle_secs == secs


NO_STEPS = [0, -1, -100, np.int64(0)]
NO_NUMBERS = [5.5, "3", True, [1], float("nan"), float("inf"), object]


@pytest.mark.parametrize("steps", NO_STEPS)
@pytest.mark.parametrize(("kind", "name"), [(TrainSpec, "max_steps"), (EvalSpec, "steps")])
def test_steps_are_greater_than_0(kind, name, steps):
    with pytest.raises(ValueError, match=f"^{kind.__name__}.{name} should be greater than 0, got {steps}$") as caught:
        kind(rows, **{name: steps})
    assert type(caught.value) is UsageError


@pytest.mark.parametrize("steps", NO_NUMBERS)
@pytest.mark.parametrize(("kind", "name"), [(TrainSpec, "max_steps"), (EvalSpec, "steps")])
def test_steps_are_whole(kind, name, steps):
    with pytest.raises(TypeError) as caught:
        kind(rows, **{name: steps})
    shown = f"{type(steps).__name__} {steps!r}"
    assert caught.value.faults == (f"{kind.__name__}.{name} should be a whole number or None, got {shown}",)


@pytest.mark.parametrize(("given", "shown"), [(1, "int 1"), ("yes", "str 'yes'"), (None, "None")])
def test_whether_each_worker_reads_all_is_true_or_false(given, shown):
    with pytest.raises(TypeError) as caught:
        TrainSpec(rows, each_worker_reads_all=given)
    assert caught.value.faults == (f"TrainSpec.each_worker_reads_all should be True or False, got {shown}",)


@pytest.mark.parametrize("kind", [TrainSpec, EvalSpec])
@pytest.mark.parametrize(("given", "shown"), [(None, "None"), (3, "int 3"), ("x", "str 'x'")])
def test_an_input_fn_can_be_called(kind, given, shown):
    with pytest.raises(TypeError) as caught:
        kind(given)
    assert caught.value.faults == (f"{kind.__name__}.input_fn should be callable, got {shown}",)


MEMBERS = [
    (TrainSpec, "hooks", HOOK, "a SessionRunHook"),
    (TrainSpec, "saving_listeners", LISTENER, "a CheckpointSaverListener"),
    (EvalSpec, "exporters", FinalExporter("a"), "an Exporter"),
]


@pytest.mark.parametrize(("kind", "field", "good", "expected"), MEMBERS)
@pytest.mark.parametrize(
    ("wrong", "shown"), [(3, "int 3"), ("x", "str 'x'"), (None, "None"), (SessionRunHook, "type <class ")]
)
def test_a_member_of_another_type_is_named_with_its_place(kind, field, good, expected, wrong, shown):
    with pytest.raises(TypeError) as caught:
        kind(rows, **{field: [good, wrong]})
    [fault] = caught.value.faults
    assert fault.startswith(f"{kind.__name__}.{field}[1] should be {expected}, got {shown}")


@pytest.mark.parametrize(("kind", "field", "good", "expected"), MEMBERS)
@pytest.mark.parametrize(
    ("wrong", "shown"), [(3, "int 3"), ("x", "str 'x'"), ({"a": 1}, "dict {'a': 1}"), (0, "int 0"), (False, "bool")]
)
def test_what_holds_no_members_is_refused(kind, field, good, expected, wrong, shown):
    with pytest.raises(TypeError) as caught:
        kind(rows, **{field: wrong})
    [fault] = caught.value.faults
    assert fault.startswith(
        f"{kind.__name__}.{field} should be a sequence of {expected.split()[1]}, or None, got {shown}"
    )


@pytest.mark.parametrize(("name", "shown"), [(3, "int 3"), (b"a", "bytes b'a'"), (["a"], "list ['a']")])
def test_the_name_of_an_evaluation_is_a_text(name, shown):
    with pytest.raises(TypeError) as caught:
        EvalSpec(rows, name=name)
    assert caught.value.faults == (f"EvalSpec.name should be a str or None, got {shown}",)


@pytest.mark.parametrize("field", ["start_delay_secs", "throttle_secs"])
@pytest.mark.parametrize("secs", [-1, -0.5, float("-inf")])
def test_secs_are_not_negative(field, secs):
    with pytest.raises(ValueError, match=f"^EvalSpec.{field} should be 0 or more, got {secs}$") as caught:
        EvalSpec(rows, **{field: secs})
    assert type(caught.value) is UsageError


@pytest.mark.parametrize("field", ["start_delay_secs", "throttle_secs"])
@pytest.mark.parametrize(
    ("secs", "shown"),
    [
        (None, "None"),
        ("1", "str '1'"),
        (True, "bool True"),
        (float("nan"), "float nan"),
        (10**400, f"int {10**400}"),
    ],
)
def test_secs_are_numbers(field, secs, shown):
    with pytest.raises(TypeError) as caught:
        EvalSpec(rows, **{field: secs})
    assert caught.value.faults == (f"EvalSpec.{field} should be a number, got {shown}",)


def test_the_names_of_exporters_are_unique():
    with pytest.raises(ValueError, match=r"^two exporters are named 'a'$"):
        EvalSpec(rows, exporters=[FinalExporter("a"), LatestExporter("b"), BestExporter("a")])


@pytest.mark.parametrize("name", ["", None, 3, "a/b", "../a", " ", ".."])
def test_the_name_of_an_exporter_names_a_directory(name):
    with pytest.raises(ValueError, match=r"^exporter name .*: expected letters, digits") as caught:
        FinalExporter(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["a/b", "../../evil", " ", "..", "a" * 101, "a\nb", "a:b"])
def test_the_name_of_an_evaluation_names_a_directory(name):
    with pytest.raises(
        ValueError, match=r"^EvalSpec\.name names a directory, expected letters, digits, .* got"
    ) as caught:
        EvalSpec(rows, name=name)
    assert repr(name) in str(caught.value)


def test_all_faults_come_in_one_error_which_is_a_type_error_if_one_of_them_is():
    with pytest.raises(ArgumentTypeError) as caught:
        TrainSpec(None, max_steps=0, hooks=[3], non_finite="dorp")
    assert len(caught.value.faults) == 4
    with pytest.raises(UsageError) as caught:
        EvalSpec(rows, steps=0, throttle_secs=-1)
    assert not isinstance(caught.value, TypeError)
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize("spec", [TrainSpec(rows), EvalSpec(rows)])
def test_a_spec_does_not_change(spec):
    with pytest.raises(AttributeError):
        spec.input_fn = None


# EstimatorSpec


@pytest.mark.parametrize(
    ("mode", "fields"),
    [
        ("train", {"loss": 1.0, "train_op": OP}),
        ("eval", {"loss": 1.0}),
        ("infer", {"predictions": np.ones(2)}),
        ("infer", {"predictions": {"y": np.ones(2)}}),
        ("infer", {"predictions": {}}),
        ("train", {"loss": np.float32(1), "train_op": OP, "predictions": {"y": 1}, "eval_metric_ops": {}}),
    ],
)
def test_an_estimator_spec_needs_what_its_mode_needs(mode, fields):
    spec = EstimatorSpec(mode, **fields)
    assert all(getattr(spec, name) is value for name, value in fields.items())


@pytest.mark.parametrize(
    ("mode", "fields", "fault"),
    [
        ("train", {"train_op": OP}, "an EstimatorSpec for train needs a loss"),
        (
            "train",
            {"loss": 1.0},
            "an EstimatorSpec for train needs a train_op: optimizer.apply_gradients or .minimize",
        ),
        ("eval", {"predictions": {"y": 1}}, "an EstimatorSpec for eval needs a loss"),
        ("infer", {"loss": 1.0}, "an EstimatorSpec for infer needs predictions"),
        (
            "eval",
            {"loss": 1.0, "eval_metric_ops": {"loss": metrics.mean(1)}},
            "eval_metric_ops must not use the reserved name 'loss'",
        ),
        (
            "eval",
            {"loss": 1.0, "eval_metric_ops": {"global_step": metrics.mean(1)}},
            "eval_metric_ops must not use the reserved name 'global_step'",
        ),
    ],
)
def test_what_is_missing_or_reserved_is_an_error_of_value(mode, fields, fault):
    with pytest.raises(ValueError, match=re.escape(fault)) as caught:
        EstimatorSpec(mode, **fields)
    assert (type(caught.value), caught.value.faults) == (ModelFnError, (fault,))


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"train_op": 3}, "train_op should be of an optimizer's apply_gradients or minimize, got int 3"),
        ({"train_op": [OP, "x"]}, "train_op should be of an optimizer's apply_gradients or minimize, got str 'x'"),
        ({"eval_metric_ops": [1]}, "eval_metric_ops should be a mapping of names to metrics, got list [1]"),
        ({"eval_metric_ops": 0}, "eval_metric_ops should be a mapping of names to metrics, got int 0"),
        ({"eval_metric_ops": {"a": 3}}, "eval_metric_ops['a'] should be a metric of psflow.metrics, got int 3"),
        ({"eval_metric_ops": {"a": (1, 2)}}, "eval_metric_ops['a'] should be a metric of psflow.metrics, got tuple"),
        ({"training_hooks": 3}, "training_hooks should be a sequence of SessionRunHook, or None, got int 3"),
        ({"training_hooks": [3]}, "training_hooks[0] should be a SessionRunHook, got int 3"),
        ({"training_chief_hooks": [HOOK, 3]}, "training_chief_hooks[1] should be a SessionRunHook, got int 3"),
        ({"loss": (1.0, np.ones(2))}, "loss should be a number (a function of psflow.losses returns the loss and its"),
    ],
)
def test_what_has_another_type_is_an_error_of_type(fields, fault):
    with pytest.raises(TypeError) as caught:
        EstimatorSpec("train", **({"loss": 1.0, "train_op": OP} | fields))
    [said] = caught.value.faults
    assert type(caught.value) is ModelFnTypeError
    assert said.startswith(f"EstimatorSpec.{fault}")


@pytest.mark.parametrize("nothing", NOTHING[:3])
@pytest.mark.parametrize("field", ["training_hooks", "training_chief_hooks"])
def test_none_and_any_empty_sequence_are_no_hooks_of_a_model_fn(field, nothing):
    assert getattr(EstimatorSpec("eval", loss=1.0, **{field: nothing}), field) == ()


@pytest.mark.parametrize("nothing", [None, {}])
def test_none_and_an_empty_mapping_are_no_metrics(nothing):
    assert EstimatorSpec("eval", loss=1.0, eval_metric_ops=nothing).metrics == {}


@pytest.mark.parametrize("loss", [np.ones(1), np.ones((1, 1)), np.float64(1), anp.ones(1), np.ones(())])
def test_an_array_of_one_number_is_a_loss(loss):
    spec = EstimatorSpec("eval", loss=loss)
    assert np.shape(spec.loss) == ()
    assert spec.loss == 1.0


def test_only_the_first_six_fields_have_a_place():
    spec = EstimatorSpec("train", {"y": 1}, 1.0, OP, {}, {"y": 2})
    assert (spec.predictions, spec.loss, spec.train_op, spec.export_outputs) == ({"y": 1}, 1.0, OP, {"y": 2})
    with pytest.raises(TypeError, match="positional arguments"):
        EstimatorSpec("train", {"y": 1}, 1.0, OP, {}, None, [HOOK])


# train_and_evaluate


@pytest.mark.parametrize(
    ("estimator", "train_spec", "eval_spec", "fault"),
    [
        (line, TrainSpec(rows), EvalSpec(rows), "estimator should be an Estimator, got function"),
        (None, TrainSpec(rows), EvalSpec(rows), "estimator should be an Estimator, got None"),
        ("good", EvalSpec(rows), EvalSpec(rows), "train_spec should be a TrainSpec, got EvalSpec"),
        ("good", TrainSpec(rows), None, "eval_spec should be an EvalSpec, or a sequence of them, got None"),
        ("good", TrainSpec(rows), TrainSpec(rows), "eval_spec should be a sequence of EvalSpec, or None, got TrainSp"),
        ("good", TrainSpec(rows), [3], "eval_spec[0] should be an EvalSpec, got int 3"),
    ],
)
def test_train_and_evaluate_takes_an_estimator_and_specs(estimator, train_spec, eval_spec, fault, make):
    with pytest.raises(TypeError) as caught:
        train_and_evaluate(make() if estimator == "good" else estimator, train_spec, eval_spec)
    [said] = caught.value.faults
    assert said.startswith(f"train_and_evaluate: {fault}")


@pytest.mark.parametrize("nothing", [[], (), iter([])])
def test_train_and_evaluate_evaluates(nothing, make):
    with pytest.raises(ValueError, match=r"^train_and_evaluate: eval_spec is empty, expected at least an EvalSpec$"):
        train_and_evaluate(make(), TrainSpec(rows), nothing)


@pytest.mark.parametrize("name", [3, ["a"], b"a", False])
def test_an_evaluation_is_named_by_a_text(name, make):
    with pytest.raises(TypeError, match="name should be a str or None, got "):
        make().eval_dir(name)


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ((None, None), "two EvalSpecs have no name; names tell their results apart"),
        (("a", "b", "a"), "two EvalSpecs are named 'a'; names tell their results apart"),
    ],
)
def test_several_evaluations_have_names_of_their_own(names, fault, make):
    with pytest.raises(ValueError, match="two EvalSpecs") as caught:
        train_and_evaluate(make(), TrainSpec(rows), [EvalSpec(rows, name=name) for name in names])
    assert (type(caught.value), caught.value.faults) == (UsageError, (fault,))


def test_the_first_of_several_evaluations_has_the_exporters(make):
    second = EvalSpec(rows, name="b", exporters=FinalExporter("final"))
    with pytest.raises(ValueError, match=r"^EvalSpec 'b' has exporters, but only those of the first EvalSpec choose"):
        train_and_evaluate(make(), TrainSpec(rows), [EvalSpec(rows), second])


@pytest.mark.parametrize(("place", "named"), [(0, "the eval input"), (1, "the eval_b input"), (2, "the eval_c input")])
def test_the_input_of_each_of_several_evaluations_is_named(place, named, make):
    inputs = [rows, rows, rows]
    inputs[place] = lambda: Dataset({"z": np.ones(4, np.float32)}, np.ones(4, np.float32)).batch(4)
    specs = [EvalSpec(input_fn, name=name) for input_fn, name in zip(inputs, ("a", "b", "c"), strict=True)]
    with pytest.raises(InputError, match=f"{named}.*'x'"):
        train_and_evaluate(make(), TrainSpec(rows), specs)
