"""Requirements of an EstimatorSpec in each mode."""

import pytest

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import GradientDescent

TRAIN_OP = GradientDescent(learning_rate=0.1).apply_gradients({})


@pytest.mark.parametrize(
    ("mode", "fields", "said"),
    [
        (ModeKeys.TRAIN, {"train_op": TRAIN_OP}, "for train needs a loss"),
        (ModeKeys.TRAIN, {"loss": 1.0}, "for train needs a train_op: optimizer.apply_gradients or .minimize"),
        (ModeKeys.TRAIN, {"loss": 1.0, "train_op": []}, "needs a train_op"),
        (
            ModeKeys.TRAIN,
            {"loss": 1.0, "train_op": [1.5]},
            "of an optimizer's apply_gradients or minimize, got float 1.5",
        ),
        (ModeKeys.EVAL, {"predictions": 1}, "for eval needs a loss"),
        (ModeKeys.PREDICT, {"loss": 1.0}, "for infer needs predictions"),
        (
            ModeKeys.EVAL,
            {"loss": 1.0, "eval_metric_ops": {"mae": 0.5}},
            r"eval_metric_ops\['mae'\] should be a metric of psflow.metrics, got float 0.5",
        ),
        (ModeKeys.EVAL, {"loss": 1.0, "eval_metric_ops": {"loss": None}}, "reserved name 'loss'"),
        (ModeKeys.EVAL, {"loss": 1.0, "eval_metric_ops": {"global_step": None}}, "reserved name 'global_step'"),
    ],
)
def test_refuses_a_spec_that_lacks_what_its_mode_needs(mode, fields, said):
    with pytest.raises(ModelFnError, match=said):
        EstimatorSpec(mode, **fields)


def test_says_all_faults_at_once():
    with pytest.raises(ModelFnError) as caught:
        EstimatorSpec(ModeKeys.TRAIN)
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize("train_op", [TRAIN_OP, [TRAIN_OP], (TRAIN_OP,)])
def test_takes_one_train_op_or_several(train_op):
    assert EstimatorSpec(ModeKeys.TRAIN, loss=1.0, train_op=train_op).train_ops == (TRAIN_OP,)


def test_predicting_needs_neither_loss_nor_train_op():
    assert EstimatorSpec(ModeKeys.PREDICT, predictions={"y": 1}).train_ops == ()


def test_modes_are_what_the_reference_calls_them():
    assert [str(mode) for mode in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)] == ["train", "eval", "infer"]
