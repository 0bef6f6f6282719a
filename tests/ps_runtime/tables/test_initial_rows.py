"""Initial values of rows: a function of seed, id and column that looks random."""

import re

import numpy as np
import pytest
import scipy.stats

from psflow.ps_runtime.tables.initial_rows import initial_rows, initializer_faults

UNIFORM = {"name": "uniform", "scale": 0.5}
NORMAL = {"name": "normal", "scale": 2.0}
DISTRIBUTIONS = [(UNIFORM, scipy.stats.uniform(-0.5, 1.0)), (NORMAL, scipy.stats.norm(0.0, 2.0))]


def drawn(make_spec, config, num_rows=4000, first=0, **facts):
    return initial_rows(make_spec(initializer=config, dim=16, **facts), np.arange(first, first + num_rows))


@pytest.mark.parametrize("config", [UNIFORM, NORMAL])
@pytest.mark.parametrize("dim", [1, 2, 5, 16])
def test_a_row_depends_on_its_id_alone(make_spec, config, dim):
    spec, ids = make_spec(initializer=config, dim=dim), np.array([0, 5, 2**40, 5, 3])
    rows = initial_rows(spec, ids)
    assert rows.shape == (5, dim)
    for i, row in zip(ids, rows, strict=True):
        np.testing.assert_array_equal(initial_rows(spec, np.array([i])), row[None])
    assert len(np.unique(rows, axis=0)) == 4
    wider = initial_rows(make_spec(initializer=config, dim=dim + 3), ids)
    np.testing.assert_array_equal(wider[:, :dim], rows)


def test_values_are_pinned(make_spec):
    # SplitMix64's finalizer in Python integers: the rows of checkpoints and exports are not stored if never pushed
    def mix(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    seed, i = 2**64 - 3, 12345
    key = mix((mix(seed) + i) % 2**64)
    expected = []
    for pair in (1, 2):
        number = mix((key + 0x9E3779B97F4A7C15 * pair) % 2**64)
        expected += [((half >> 9) + 0.5) / 2**23 for half in (number % 2**32, number >> 32)]
    spec = make_spec(initializer={"name": "uniform", "scale": 1.0}, dim=3, seed=seed, dtype="float64")
    np.testing.assert_array_equal(initial_rows(spec, np.array([i]))[0], 2.0 * np.array(expected[:3]) - 1.0)


def test_many_rows_are_as_few(make_spec):
    ids = np.arange(10_000)
    spec = make_spec(initializer=UNIFORM, dim=16)
    np.testing.assert_array_equal(initial_rows(spec, ids)[9_000:], initial_rows(spec, ids[9_000:]))


@pytest.mark.parametrize(("config", "distribution"), DISTRIBUTIONS)
def test_values_have_their_distribution(make_spec, config, distribution):
    rows = drawn(make_spec, config)
    assert scipy.stats.kstest(rows.ravel(), distribution.cdf).pvalue > 0.01
    assert rows.mean() == pytest.approx(0.0, abs=4 * distribution.std() / rows.size**0.5)
    assert rows.std() == pytest.approx(distribution.std(), rel=0.01)
    for column in rows.T:
        assert scipy.stats.kstest(column, distribution.cdf).pvalue > 0.001


@pytest.mark.parametrize("config", [UNIFORM, NORMAL])
def test_columns_and_neighbours_are_not_correlated(make_spec, config):
    rows = drawn(make_spec, config)
    bound = 5 / len(rows) ** 0.5
    assert np.max(np.abs(np.corrcoef(rows.T) - np.eye(16))) < bound
    for lag in (1, 2, 3, 64, 1024):
        assert abs(np.corrcoef(rows[:-lag].ravel(), rows[lag:].ravel())[0, 1]) < bound / 4
    assert abs(np.corrcoef(np.abs(rows[:, 0]), np.abs(rows[:, 1]))[0, 1]) < bound


@pytest.mark.parametrize("config", [UNIFORM, NORMAL])
def test_tables_of_neighbouring_seeds_share_no_rows(make_spec, config):
    one, other = drawn(make_spec, config, seed=7), drawn(make_spec, config, seed=8)
    assert not {row.tobytes() for row in one} & {row.tobytes() for row in other}
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5 / one.size**0.5
    assert abs(np.corrcoef(one[1:].ravel(), other[:-1].ravel())[0, 1]) < 5 / one.size**0.5


def test_uniform_values_stay_inside_and_are_not_zero(make_spec):
    rows = drawn(make_spec, {"name": "uniform", "scale": 1.0}, num_rows=20_000)
    assert np.min(np.abs(rows)) > 0.0
    assert 0.9999 < np.max(np.abs(rows)) < 1.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constants(make_spec, dtype):
    for config, value in (({"name": "zeros"}, 0.0), ({"name": "constant", "value": -1.5}, -1.5)):
        rows = drawn(make_spec, config, num_rows=3, dtype=dtype)
        assert rows.dtype == dtype
        assert (rows == value).all()


@pytest.mark.parametrize("config", [{"name": "zeros"}, {"name": "constant", "value": 2}, UNIFORM, NORMAL])
def test_good_configs_have_no_faults(config):
    assert initializer_faults(config) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "unknown initializer None, expected one of zeros, constant, uniform, normal"),
        ({"name": "unifrm"}, "unknown initializer 'unifrm', .*; did you mean 'uniform'"),
        ({"name": "uniform"}, "uniform: scale is None, expected a finite number >= 0"),
        ({"name": "uniform", "scale": -1.0}, "uniform: scale is -1.0, expected a finite number >= 0"),
        ({"name": "normal", "scale": np.inf}, "normal: scale is inf, expected a finite number >= 0"),
        ({"name": "constant", "value": "1"}, "constant: value is '1', expected a finite number$"),
        ({"name": "constant", "value": True}, "constant: value is True, expected a finite number$"),
        ({"name": "zeros", "scale": 1.0}, "zeros: unknown key 'scale'"),
    ],
)
def test_faults_of_a_config_are_reported(config, words):
    (fault,) = initializer_faults(config)
    assert re.match(words, fault), fault
