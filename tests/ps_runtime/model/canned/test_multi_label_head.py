import numpy as np
import pytest
import sklearn.metrics

from psflow.ps_runtime.columns.labels import Label
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column
from psflow.ps_runtime.errors import InputError, LabelError, UsageError
from psflow.ps_runtime.model.canned.multi_label_head import MultiLabelHead
from psflow.ps_runtime.specs.schema import InputSchema

RNG = np.random.default_rng(9)
LABELS = RNG.integers(0, 2, (50, 3))
LOGITS = (RNG.normal(size=(50, 3)) + LABELS).astype(np.float32)
WEIGHTS = RNG.integers(0, 4, 50).astype(np.float32)
HEAD = MultiLabelHead(3)
PETS = MultiLabelHead(3, label_vocabulary=["cat", "dog", "elk"])


@pytest.mark.parametrize("labels", [LABELS, LABELS == 1, LABELS.astype(np.float32), LABELS.tolist()])
def test_the_loss_is_the_mean_cross_entropy_of_all_classes(labels, central_differences):
    loss, gradient = HEAD.loss(labels, LOGITS)
    probabilities = HEAD.predictions(LOGITS)["probabilities"]
    assert loss == pytest.approx(sklearn.metrics.log_loss(LABELS.ravel(), probabilities.ravel()), rel=1e-5)
    slopes = central_differences(lambda x: HEAD.loss(labels, x)[0], LOGITS.astype(np.float64))
    np.testing.assert_allclose(gradient, slopes, atol=1e-7)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (None, r"a classifier needs labels, the batch has none"),
        (LABELS[:, 0], r"expected labels of shape \(50, 3\) for the 50 examples of the batch, got \(50,\); 1 for each"),
        (LABELS[:7], r"expected labels of shape \(50, 3\) .*, got \(7, 3\)"),
        (LABELS.astype(str), r"expected labels 0 and 1 for each class, got <U21 such as"),
    ],
)
def test_labels_of_another_kind_are_refused(labels, words):
    with pytest.raises(InputError, match=words):
        HEAD.loss(labels, LOGITS)


@pytest.mark.parametrize("value", [2, -1, 0.5, np.nan])
def test_a_label_that_is_neither_0_nor_1_is_named_with_its_place(value):
    labels = [[0, 1, 0], [0, 1, value]]
    with pytest.raises(LabelError, match=rf"label of row 1 of the train input has {value} for class 2, expected 0 or"):
        HEAD.check_labels(labels, "the train input")


def test_labels_may_be_words():
    labels = np.array([["elk", "cat"], ["dog", ""], ["", ""]])
    assert PETS.loss(labels, LOGITS[:3])[0] == HEAD.loss([[1, 0, 1], [0, 1, 0], [0, 0, 0]], LOGITS[:3])[0]
    assert PETS.loss(np.char.encode(labels), LOGITS[:3])[0] == PETS.loss(labels, LOGITS[:3])[0]
    with pytest.raises(LabelError, match=r"label of row 1 of the batch is 'elf', expected one of 'cat', .*'elk'"):
        PETS.loss(np.array([["elk", "cat"], ["", "elf"]]), LOGITS[:2])


def test_one_class_for_each_record_is_no_set_of_labels():
    label = Label(Column(RawColumn("pet", "string"), "string"), "int64", ("cat", "dog", "elk"))
    schema = InputSchema((), label="pet", preprocessing=Preprocessing((), (), label=label))
    with pytest.raises(InputError, match="the label 'pet' is one class per record"):
        HEAD.reading(schema)


def test_a_class_may_have_metrics_of_its_own():
    head = MultiLabelHead(3, label_vocabulary=["cat", "dog", "elk"], classes_for_class_based_metrics=["dog", 2])
    predictions = head.predictions(LOGITS)
    measured = head.metrics(LABELS, predictions, 0.0)
    of_dogs = predictions["probabilities"][:, 1]
    assert measured["probability_mean/dog"].result() == pytest.approx(of_dogs.mean(), rel=1e-6)
    assert measured["auc/dog"].result() == pytest.approx(sklearn.metrics.roc_auc_score(LABELS[:, 1], of_dogs), abs=5e-3)
    assert {name for name in measured if "elk" in name} == {
        "probability_mean/elk",
        "auc/elk",
        "auc_precision_recall/elk",
    }


def test_weighted_metrics_are_those_of_repeated_examples():
    head = MultiLabelHead(3, thresholds=[0.5], classes_for_class_based_metrics=[1])
    repeats = np.repeat(np.arange(50), WEIGHTS.astype(int))
    found = []
    for labels, logits, weights in ((LABELS, LOGITS, WEIGHTS), (LABELS[repeats], LOGITS[repeats], None)):
        measured = head.metrics(labels, head.predictions(logits), head.mean_loss(labels, logits, weights)[0], weights)
        found.append({name: metric.result() for name, metric in measured.items()})
    assert found[0] == pytest.approx(found[1], rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"n_classes": 1}, "MultiLabelHead: n_classes is 1, expected an integer >= 2"),
        ({"n_classes": None}, "n_classes is None, expected an integer"),
        ({"n_classes": 2, "classes_for_class_based_metrics": [2]}, r"has 2, expected an integer in \[0, 2\)"),
        ({"n_classes": 2, "classes_for_class_based_metrics": ["a"]}, "has 'a', expected an integer in"),
        ({"n_classes": 2, "classes_for_class_based_metrics": "a"}, "is 'a', expected a list of class ids or names"),
        ({"n_classes": 2, "classes_for_class_based_metrics": [True]}, "has True, expected an integer"),
        ({"n_classes": 2, "classes_for_class_based_metrics": [1, 1]}, "has 1 twice"),
    ],
)
def test_arguments_are_checked(arguments, fault):
    with pytest.raises(UsageError, match=fault):
        MultiLabelHead(**arguments)


def test_none_is_no_threshold_and_no_class():
    assert MultiLabelHead(2, thresholds=None, classes_for_class_based_metrics=None) == MultiLabelHead(2)
