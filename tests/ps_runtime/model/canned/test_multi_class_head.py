from dataclasses import replace

import numpy as np
import pytest
import scipy.special
import sklearn.metrics

from psflow.ps_runtime.columns.labels import Label
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column
from psflow.ps_runtime.errors import InputError, ModelFnError, UsageError
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.class_heads import BinaryClassHead, ClassifierSpec, MultiClassHead
from psflow.ps_runtime.model.canned.multi_label_head import MultiLabelHead
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.specs.schema import InputSchema

RNG = np.random.default_rng(9)
LOGITS = RNG.normal(size=(50, 3)).astype(np.float32)
LABELS = RNG.integers(0, 3, 50)
HEAD = MultiClassHead(3)


def test_predictions_are_softmax_and_its_best_class():
    predictions = HEAD.predictions(LOGITS)
    assert predictions["logits"] is LOGITS
    np.testing.assert_allclose(predictions["probabilities"], scipy.special.softmax(LOGITS, axis=1), rtol=1e-6)
    assert predictions["probabilities"].dtype == np.float32
    assert predictions["class_ids"][:, 0].tolist() == LOGITS.argmax(axis=1).tolist()
    assert predictions["classes"][:, 0].tolist() == [str(best) for best in LOGITS.argmax(axis=1)]


@pytest.mark.filterwarnings("error")
def test_predictions_of_huge_logits_are_still_probabilities():
    probabilities = HEAD.predictions(np.array([[1e4, 0.0, -1e4]], np.float32))["probabilities"]
    assert probabilities.tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "labels",
    [LABELS, LABELS[:, None], LABELS.astype(np.uint8), LABELS.astype(np.float64), LABELS.tolist()],
    ids=["ids", "column", "bytes", "whole floats", "list"],
)
def test_labels_may_come_in_any_of_these_forms(labels):
    loss, gradient = HEAD.loss(labels, LOGITS)
    expected = sklearn.metrics.log_loss(LABELS, scipy.special.softmax(LOGITS.astype(float), axis=1))
    assert loss == pytest.approx(expected, rel=1e-6)
    assert gradient.dtype == np.float32


@pytest.mark.parametrize("value", [3, -1, 3.0, 1.5, np.nan, np.inf])
@pytest.mark.filterwarnings("error")
def test_a_label_that_is_no_class_is_named_with_its_row(value):
    with pytest.raises(InputError, match=rf"label of row 2 of the batch is {value}, expected an integer in \[0, 3\)"):
        HEAD.loss([0, 2, value, value], LOGITS[:4])


@pytest.mark.parametrize("labels", [np.array(["cat", "dog"]), np.array(["cat", None], object)])
def test_labels_that_are_no_numbers_are_shown(labels):
    with pytest.raises(
        InputError, match=r"expected integer labels, got (<U3|object) such as \['cat'\]; encode them as class"
    ):
        HEAD.loss(labels, LOGITS[:2])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (None, r"a classifier needs labels, the batch has none; return \(features, labels\) from input_fn"),
        (LABELS[:7], r"expected labels of shape \(50,\) for the 50 examples of the batch, got \(7,\)"),
        (
            np.eye(3)[LABELS],
            r"expected labels of shape \(50,\) for the 50 examples of the batch, got \(50, 3\); one class id for each",
        ),
    ],
)
def test_labels_of_another_shape_are_refused(labels, words):
    with pytest.raises(InputError, match=words):
        HEAD.loss(labels, LOGITS)


def measured(head, labels, logits, batch):
    totals = {}
    for start in range(0, len(labels), batch):
        some, these = labels[start : start + batch], logits[start : start + batch]
        loss = head.loss(some, these)[0]
        for name, metric in head.metrics(some, head.predictions(these), loss).items():
            totals[name] = totals[name].merge(metric) if name in totals else metric
    return {name: metric.result() for name, metric in totals.items()}


def test_metrics_of_many_classes():
    results = measured(HEAD, LABELS[:, None], LOGITS, batch=16)
    assert set(results) == {"accuracy", "average_loss"}
    assert results["accuracy"] == sklearn.metrics.accuracy_score(LABELS, LOGITS.argmax(axis=1))
    assert results["average_loss"] == pytest.approx(HEAD.loss(LABELS, LOGITS)[0], rel=1e-6)


@pytest.mark.parametrize("labels", [LABELS, LABELS[:, None], LABELS.astype(np.float32), LABELS[:0]])
def test_labels_of_a_whole_data_set_pass(labels):
    HEAD.check_labels(labels, "the train input")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.arange(5), r"label of row 3 of the train input is 3, expected an integer in \[0, 3\)"),
        (np.array([0.0, 0.5]), r"label of row 1 of the train input is 0.5, expected an integer"),
        (None, "a classifier needs labels, the train input has none"),
        ({"label": LABELS}, r"expected labels of shape \(1,\) .* of the train input, got \(\)"),
        (np.eye(3), r"expected labels of shape \(3,\) for the 3 examples of the train input, got \(3, 3\)"),
    ],
)
def test_labels_of_a_whole_data_set_are_refused_by_their_row(labels, words):
    with pytest.raises(InputError, match=words):
        HEAD.check_labels(labels, "the train input")


WEIGHTS = RNG.integers(0, 4, 50).astype(np.float32)


def test_weights_multiply_the_losses_and_the_divisor_is_the_number_of_examples():
    loss, gradient = HEAD.loss(LABELS, LOGITS, WEIGHTS)
    each = [HEAD.loss(LABELS[row : row + 1], LOGITS[row : row + 1]) for row in range(50)]
    assert loss == pytest.approx(np.dot(WEIGHTS, [one[0] for one in each]) / 50, rel=1e-6)
    expected = np.concatenate([one[1] for one in each]) * WEIGHTS[:, None] / 50
    np.testing.assert_allclose(gradient, expected, atol=1e-7)
    assert gradient.dtype == np.float32


def test_weighted_metrics_are_those_of_repeated_examples():
    head, labels, logits = HEAD, LABELS, LOGITS
    repeats = np.repeat(np.arange(50), WEIGHTS.astype(int))
    weighted = head.metrics(labels, head.predictions(logits), head.loss(labels, logits, WEIGHTS)[0], WEIGHTS)
    more_labels, more_logits = labels[repeats], logits[repeats]
    repeated = head.metrics(more_labels, head.predictions(more_logits), head.loss(more_labels, more_logits)[0])
    assert {name: metric.result() for name, metric in weighted.items()} == pytest.approx(
        {name: metric.result() for name, metric in repeated.items()}, rel=1e-6
    )


def schema_of(*classes):
    label = Label(Column(RawColumn("pet", "string"), "string"), "int64", classes or None)
    return InputSchema((), label="pet", preprocessing=Preprocessing((), (), label=label))


def test_there_are_as_many_classes_as_words_and_predictions_say_them():
    head = ClassifierSpec().reading(schema_of("cat", "dog", "elk"))
    assert head == ClassifierSpec(3).reading(schema_of("cat", "dog", "elk"))
    assert head == MultiClassHead(3, label_vocabulary=["cat", "dog", "elk"])
    assert head.predictions(np.float32([[0, 0, 1], [1, 0, 0]]))["classes"].tolist() == [["elk"], ["cat"]]


@pytest.mark.parametrize(
    ("asked", "schema", "head"),
    [
        (ClassifierSpec(), schema_of(), BinaryClassHead()),
        (ClassifierSpec(), schema_of("no", "yes"), BinaryClassHead(label_vocabulary=["no", "yes"])),
        (ClassifierSpec(5), InputSchema(()), MultiClassHead(5)),
        (ClassifierSpec(label_vocabulary=["a", "b"]), InputSchema(()), BinaryClassHead(label_vocabulary=("a", "b"))),
        (
            ClassifierSpec(label_vocabulary=("a", "b", "c")),
            schema_of("a", "b", "c"),
            MultiClassHead(3, label_vocabulary=["a", "b", "c"]),
        ),
        (
            ClassifierSpec(3, "w", None, Reduction.SUM),
            InputSchema((), weight_column="w"),
            MultiClassHead(3, "w", None, "sum"),
        ),
    ],
)
def test_two_classes_have_one_logit_and_more_have_one_each(asked, schema, head):
    assert asked.reading(schema) == head
    assert head.logits_dimension == (1 if isinstance(head, BinaryClassHead) else head.n_classes)


@pytest.mark.parametrize(
    ("n_classes", "given", "words", "fault"),
    [
        (2, None, ("cat", "dog", "elk"), "n_classes is 2, but the label 'pet' has 3 classes, 'cat', 'dog', 'elk'; l"),
        (None, None, ("cat",), "the label 'pet' has one class, 'cat': expected at least 2"),
        (2, ("dog", "cat"), ("cat", "dog"), "label_vocabulary is 'dog', 'cat', but the label 'pet' has the classes 'c"),
    ],
)
def test_other_classes_than_those_of_the_label_are_refused(n_classes, given, words, fault):
    with pytest.raises(InputError, match=fault):
        ClassifierSpec(n_classes, label_vocabulary=given).reading(schema_of(*words))


@pytest.mark.parametrize(
    ("weight_column", "schema", "fault"),
    [
        ("w", InputSchema(()), "weight_column is 'w', but the weights of the training input are none"),
        (
            "w",
            InputSchema((), weight_column="v"),
            "weight_column is 'w', but the weights of the training input are 'v'",
        ),
    ],
)
def test_other_weights_than_those_of_the_input_are_refused(weight_column, schema, fault):
    for head in (HEAD, BinaryClassHead(), MultiLabelHead(2), RegressionHead()):
        with pytest.raises(InputError, match=fault):
            replace(head, weight_column=weight_column).reading(schema)


def test_the_weights_of_the_input_are_those_of_the_head():
    for head in (HEAD, BinaryClassHead(), MultiLabelHead(2), RegressionHead()):
        assert head.reading(InputSchema((), weight_column="v")) == replace(head, weight_column="v")


PETS = MultiClassHead(3, label_vocabulary=["cat", "dog", "elk"])


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["elk", "cat", "elk"]),
        np.array([["elk"], ["cat"], ["elk"]]),
        np.array(["elk", "cat", "elk"], object),
        np.array([b"elk", b"cat", b"elk"]),
        np.array([b"elk", "cat", "elk"], object),
    ],
)
def test_words_are_labels_where_there_is_a_vocabulary(labels):
    assert PETS.loss(labels, LOGITS[:3])[0] == HEAD.loss([2, 0, 2], LOGITS[:3])[0]
    PETS.check_labels(labels, "the train input")
    assert PETS.loss([2, 0, 2], LOGITS[:3])[0] == HEAD.loss([2, 0, 2], LOGITS[:3])[0], "and so are ids"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["cat", "dgo"], r"label of row 1 of the batch is 'dgo', expected one of 'cat', 'dog', 'elk'; .*'dog'"),
        (np.array(["cat", None], object), "label of row 1 of the batch is None, expected one of 'cat'"),
        (np.array([float("nan"), "cat"], object), "label of row 0 of the batch is nan, expected one of 'cat'"),
        (np.array([["a", "b"], None], object), r"label of row 0 of the batch is \['a', 'b'\], expected one of 'cat'"),
        (["", "cat"], "label of row 0 of the batch is '', expected one of 'cat'"),
        (np.array([b"cat", b"dgo"]), r"label of row 1 of the batch is 'dgo', expected one of 'cat'"),
        (np.array([b"cat", b"\xff"]), r"row 1 of the labels of the batch is b'\\xff', which is not UTF-8"),
    ],
)
def test_a_word_that_is_no_class_is_named_with_its_row(labels, words):
    with pytest.raises(InputError, match=words):
        PETS.loss(np.array(labels), LOGITS[:2])


@pytest.mark.parametrize(
    ("n_classes", "shown"),
    [(10, r"expected one of '0', .*, '8', '9'$"), (11, r"expected one of '0', .*, '9', \.\.\.$")],
)
def test_ten_classes_are_listed_and_of_more_the_first(n_classes, shown):
    head = MultiClassHead(n_classes, label_vocabulary=[str(word) for word in range(n_classes)])
    with pytest.raises(InputError, match=shown):
        head.check_labels(np.array(["elephant"]), "the train input")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"n_classes": 2}, "MultiClassHead: n_classes is 2, expected an integer >= 3"),
        ({"n_classes": None}, "n_classes is None, expected an integer"),
        ({"n_classes": 3.0}, "n_classes is 3.0, expected an integer >= 3"),
        ({"n_classes": 3, "weight_column": 3}, "weight_column is 3, expected the name of a feature, or None"),
        ({"n_classes": 3, "weight_column": ""}, "weight_column is '', expected the name of a feature"),
        ({"n_classes": 3, "label_vocabulary": "abc"}, "label_vocabulary is 'abc', expected a list of the class names"),
        ({"n_classes": 3, "label_vocabulary": ["a", "b"]}, "label_vocabulary has 2 names, expected 3, one for each"),
        ({"n_classes": 3, "label_vocabulary": ["a", "b", "a"]}, "label_vocabulary has 'a' twice"),
        ({"n_classes": 3, "label_vocabulary": ["a", 1, "c"]}, "label_vocabulary has 1, expected class names"),
        ({"n_classes": 3, "loss_reduction": "summ"}, "loss_reduction is 'summ', expected one of sum, .*'sum'"),
        ({"n_classes": 3, "loss_reduction": None}, "loss_reduction is None, expected one of sum, sum_over_batch_size"),
        ({"n_classes": 3, "name": 3}, "name is 3, expected a text, or None"),
    ],
)
def test_arguments_are_checked(arguments, fault):
    with pytest.raises(UsageError, match=fault):
        MultiClassHead(**arguments)


def test_all_faults_come_at_once():
    with pytest.raises(UsageError) as caught:
        MultiClassHead(1, 3, "ab", "none", name="")
    assert len(caught.value.faults) == 5


@pytest.mark.parametrize("mode", ModeKeys)
@pytest.mark.parametrize("shape", [(8, 2), (8, 5), (8,), (8, 3, 1)])
def test_logits_of_another_width_are_refused_in_every_mode(mode, shape):
    given = np.zeros(shape, np.float32)
    with pytest.raises(ModelFnError, match=r"logits have the shape \[8.*expected \[batch, 3\] for MultiClassHead"):
        HEAD.create_estimator_spec({}, mode, given, np.zeros(8, int))
    with pytest.raises(ModelFnError, match="make the last layer 3 wide"):
        HEAD.loss(np.zeros(8, int), given)
