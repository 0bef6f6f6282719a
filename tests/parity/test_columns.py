"""Feature columns against TensorFlow 2.15.1: the same features, the same first values, the same batches."""

import json

import numpy as np
import pytest

import psflow
from psflow import (
    Dataset,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    RunConfig,
    WarmStartSettings,
    feature_column,
    get_variable,
    initializers,
)
from psflow.ps_runtime.feature_columns.transforming import Transformation
from psflow.ps_runtime.model.calls.scope import BuildScope, CallScope
from tests.parity.columns import (
    BATCH,
    CATEGORICAL,
    COMBINERS,
    DENSE,
    FEATURES,
    HASHED,
    MODELS,
    NUMBERS_FILE,
    SEQUENCE,
    SEQUENCES,
    batches,
    columns_of,
    first_values,
    initial,
)

TENSORFLOW = json.loads(NUMBERS_FILE.read_text())
CONFIG = RunConfig(tf_random_seed=1, save_checkpoints_steps=10_000)


def computed(compute):
    """Return what is computed in a model_fn whose variables have the `first_values`; biases are 0."""
    with BuildScope(0, 1) as scope:
        compute()
    values = {
        name: np.zeros(known.shape, np.float32) if "bias" in name else first_values(known.shape)
        for name, known in scope.declared.items()
    }
    with CallScope(0, values, scope.declared):
        return compute()


def ids_of(make):
    found = Transformation(FEATURES).ids(make(feature_column, np))
    return [row[there].tolist() for row, there in zip(found.ids, found.present, strict=True)]


@pytest.mark.parametrize("case", CATEGORICAL)
def test_ids_are_those_of_tensorflow(case):
    assert ids_of(CATEGORICAL[case]) == TENSORFLOW["ids"][case]


@pytest.mark.parametrize("case", HASHED)
def test_hashes_are_those_of_tensorflow_up_to_their_names(case):
    ours, theirs = ids_of(HASHED[case]), TENSORFLOW["ids"][case]
    assert [len(row) for row in ours] == [len(row) for row in theirs]
    pairs = {pair for row in zip(ours, theirs, strict=True) for pair in zip(*row, strict=True)}
    assert len(pairs) == len({mine for mine, _ in pairs}) == len({other for _, other in pairs}) > 2
    assert all(0 <= mine < 2**40 for mine, _ in pairs)


@pytest.mark.parametrize("case", DENSE)
def test_an_input_layer_is_that_of_tensorflow(case):
    columns = DENSE[case](feature_column, np, initializers.zeros)
    found = computed(lambda: feature_column.input_layer(FEATURES, columns))
    np.testing.assert_allclose(found, TENSORFLOW["dense"][case], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", SEQUENCE)
def test_a_layer_of_sequences_is_that_of_tensorflow(case):
    columns = SEQUENCE[case](feature_column, np, initializers.zeros)
    inputs, lengths = computed(lambda: feature_column.sequence_input_layer(SEQUENCES, columns))
    expected = TENSORFLOW["sequence"][case]
    np.testing.assert_allclose(inputs, expected["inputs"], rtol=1e-6, atol=1e-7)
    assert lengths.tolist() == expected["lengths"]


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("case", CATEGORICAL)
def test_a_linear_model_is_that_of_tensorflow(case, combiner):
    column = CATEGORICAL[case](feature_column, np)
    found = computed(lambda: feature_column.linear_model(FEATURES, column, 2, combiner))
    np.testing.assert_allclose(found, TENSORFLOW["linear"][case][combiner], rtol=1e-6, atol=1e-7)


def test_numbers_that_are_missing_are_those_of_tensorflow():
    column = feature_column.numeric_column("pairs", 2, default_value=[7.0, 8.0])
    found = feature_column.input_layer({"pairs": np.float32([[1, 2], [np.nan, np.nan]])}, column)
    assert found.tolist() == TENSORFLOW["default"]


class Losses(psflow.SessionRunHook):
    def __init__(self):
        self.values = []

    def before_run(self, run_context):
        return psflow.SessionRunArgs("loss")

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)


def first_checkpoint(model, directory):
    """Return a warm start from a checkpoint with the values that TensorFlow began with."""

    def model_fn(features, labels, mode):
        values = {
            name: get_variable(name, initializer=initial(name, tuple(shape)))
            for name, shape in TENSORFLOW["losses"][model]["variables"].items()
        }
        still = {name: np.zeros_like(value) for name, value in values.items()}
        return EstimatorSpec(mode, loss=0.0, train_op=GradientDescent(0.1).apply_gradients(still))

    Estimator(model_fn, str(directory), CONFIG).train(lambda: Dataset(np.zeros((1, 1), np.float32)), steps=1)
    return WarmStartSettings(str(directory), vars_to_warm_start=[".*"])


@pytest.mark.parametrize("model", MODELS)
def test_losses_of_canned_models_are_those_of_tensorflow(model, tmp_path):
    def records():
        given = list(batches())
        features = {name: np.concatenate([each[name] for each, _ in given]) for name in given[0][0]}
        return Dataset(features, np.concatenate([labels for _, labels in given])).batch(BATCH)

    estimator = getattr(psflow, model)(
        **MODELS[model],
        **columns_of(model, feature_column),
        model_dir=str(tmp_path / "model"),
        config=CONFIG,
        warm_start_from=first_checkpoint(model, tmp_path / "first"),
    )
    losses, expected = Losses(), TENSORFLOW["losses"][model]["losses"]
    estimator.train(records, hooks=[losses])
    assert len(losses.values) == len(expected) == 200
    np.testing.assert_allclose(losses.values[:20], expected[:20], rtol=1e-5)
    np.testing.assert_allclose(losses.values, expected, rtol=1e-3)
