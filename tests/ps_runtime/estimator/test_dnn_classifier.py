import numpy as np
import pytest

from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.estimator.canned.dnn import DNNClassifier
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.optimizers import Adam
from psflow.ps_runtime.specs.run_config import RunConfig

RNG = np.random.default_rng(11)
CENTRES = np.array([[2.0, 0.0], [-2.0, 2.0], [-2.0, -2.0]])
LABELS = RNG.integers(0, 3, 90)
FEATURES = (CENTRES[LABELS] + 0.4 * RNG.normal(size=(90, 2))).astype(np.float32)
CONFIG = RunConfig(tf_random_seed=3, save_checkpoints_steps=1000)


def training_input():
    return Dataset({"x": FEATURES}, LABELS, num_epochs=None, shuffle_seed=1).batch(30)


def evaluation_input():
    return Dataset({"x": FEATURES}, LABELS).batch(40)


@pytest.fixture
def classifier(tmp_path):
    return DNNClassifier([8], n_classes=3, optimizer=Adam(learning_rate=0.05), model_dir=str(tmp_path), config=CONFIG)


def test_learns_evaluates_and_predicts(classifier):
    classifier.train(training_input, max_steps=60)
    results = classifier.evaluate(evaluation_input)
    assert results.keys() == {"accuracy", "average_loss", "loss", "global_step"}
    assert results["accuracy"] > 0.95
    assert results["global_step"] == 60
    predictions = list(classifier.predict(evaluation_input, predict_keys=["class_ids", "probabilities"]))
    assert len(predictions) == 90
    assert np.mean([p["class_ids"][0] for p in predictions] == LABELS) == pytest.approx(results["accuracy"])
    assert predictions[0]["probabilities"].sum() == pytest.approx(1.0, rel=1e-6)
    assert classifier.get_variable_value("dnn/hiddenlayer_0/kernel").shape == (2, 8)


def test_a_label_out_of_range_anywhere_in_the_data_stops_it_before_it_starts(classifier, tmp_path):
    labels = LABELS.copy()
    labels[77] = 3
    with pytest.raises(InputError, match=r"label of row 77 of the train input is 3, expected an integer in \[0, 3\)"):
        classifier.train(lambda: Dataset({"x": FEATURES}, labels).batch(30), max_steps=5)
    assert not list(tmp_path.iterdir())


def test_defaults_are_the_references():
    classifier = DNNClassifier([4], model_dir="unused")
    assert classifier.params["head"] == ClassifierSpec(), "of two classes where labels are numbers"
    assert classifier.params["optimizer"].config() == {
        "name": "Adagrad",
        "initial_accumulator_value": 0.1,
        "epsilon": 0.0,
        "weight_decay": 0.0,
    }
    assert classifier.params["optimizer"].learning_rate == 0.05


def test_says_all_faults_at_once():
    with pytest.raises(UsageError) as caught:
        DNNClassifier([8, 0], n_classes=1, optimizer="Adagard")
    assert caught.value.faults == (
        "DNNClassifier: hidden_units is [8, 0], expected a list of integers >= 1",
        "DNNClassifier: n_classes is 1, expected an integer >= 2",
        "DNNClassifier: optimizer: unknown optimizer 'Adagard', expected one of GradientDescent, Momentum, Adagrad, "
        "Adam, AdamW, NAdam, RMSProp, Ftrl; did you mean 'Adagrad'?",
    )


@pytest.mark.parametrize("hidden_units", [8, "88", [True], [4.0], None])
def test_refuses_hidden_units_that_are_no_list_of_counts(hidden_units):
    with pytest.raises(UsageError, match=r"hidden_units is .*, expected a list of integers >= 1"):
        DNNClassifier(hidden_units)
