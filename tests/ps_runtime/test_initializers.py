import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from psflow import initializers
from psflow.ps_runtime.initializers import table_seed, variable_rng

ALL = {
    "zeros": initializers.zeros,
    "ones": initializers.ones,
    "constant": initializers.constant(0.5),
    "uniform": initializers.uniform(low=-1.0, high=3.0),
    "normal": initializers.normal(mean=1.0, stddev=2.0),
    "truncated_normal": initializers.truncated_normal(mean=1.0, stddev=2.0),
    "glorot_uniform": initializers.glorot_uniform,
    "he_normal": initializers.he_normal,
}


@pytest.fixture(params=ALL.values(), ids=ALL.keys())
def initializer(request):
    return request.param


def test_the_seed_of_a_table_stays_what_it_is():
    assert (
        table_seed(7, "items") == 1468444218045811402
    )  # another one would move all rows that exports and checkpoints do not hold
    assert len({table_seed(7, "items"), table_seed(8, "items"), table_seed(7, "users")}) == 3


@pytest.mark.parametrize("shape", [(), (0,), (3,), (4, 5), (0, 5), (3, 3, 2, 4)], ids=str)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gives_the_shape_and_dtype_asked_for(initializer, shape, dtype):
    value = initializer(shape, dtype, variable_rng(1, "v"))
    assert isinstance(value, np.ndarray)
    assert (value.shape, value.dtype) == (shape, np.dtype(dtype))
    assert np.isfinite(value).all()


def test_is_a_function_of_seed_and_name(initializer):
    one = initializer((4, 5), np.float32, variable_rng(1, "v"))
    again = pickle.loads(pickle.dumps(initializer))((4, 5), np.float32, variable_rng(1, "v"))
    assert one.tobytes() == again.tobytes()


@pytest.mark.parametrize("name", ["uniform", "normal", "truncated_normal", "glorot_uniform", "he_normal"])
def test_random_ones_differ_by_seed_and_by_name(name):
    draws = [ALL[name]((8,), np.float64, variable_rng(*key)) for key in [(1, "v"), (2, "v"), (1, "w"), (11, "v")]]
    assert len({d.tobytes() for d in draws}) == 4


def test_the_dtype_only_rounds():
    wide, narrow = (initializers.he_normal((50, 5), t, variable_rng(1, "v")) for t in (np.float64, np.float32))
    assert np.array_equal(wide.astype(np.float32), narrow)


@pytest.mark.process
def test_draws_do_not_depend_on_the_hash_seed_of_the_process():
    draw = "print(variable_rng(7, 'dense/kernel').integers(2**62))"
    code = f"from psflow.ps_runtime.initializers import variable_rng; {draw}"
    env = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}
    other = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert int(other.stdout) == variable_rng(7, "dense/kernel").integers(2**62)


def test_draws_are_pinned():
    # a change here makes every old seed mean another model
    assert variable_rng(0, "dense/kernel").integers(2**62) == 2_675_016_246_211_188_585


@pytest.mark.parametrize(
    ("name", "shape", "distribution"),
    [
        ("uniform", (2000,), scipy.stats.uniform(-1.0, 4.0)),
        ("normal", (2000,), scipy.stats.norm(1.0, 2.0)),
        ("truncated_normal", (2000,), scipy.stats.truncnorm(-2, 2, 1.0, 2.0)),
        ("glorot_uniform", (60, 90), scipy.stats.uniform(-0.2, 0.4)),
        ("he_normal", (50, 40), scipy.stats.truncnorm(-2, 2, 0.0, 0.2 / scipy.stats.truncnorm(-2, 2).std())),
        ("he_normal", (2, 5, 5, 40), scipy.stats.truncnorm(-2, 2, 0.0, 0.2 / scipy.stats.truncnorm(-2, 2).std())),
    ],
)
def test_draws_follow_their_distribution(name, shape, distribution):
    values = ALL[name](shape, np.float64, variable_rng(4, "v")).ravel()
    assert scipy.stats.kstest(values, distribution.cdf).pvalue > 0.01


def test_he_normal_has_the_stated_deviation():
    values = initializers.he_normal((200, 100), np.float64, variable_rng(4, "v"))
    assert values.std() == pytest.approx(math.sqrt(2 / 200), rel=0.02)


def test_constant_takes_a_number_or_an_array():
    rng = variable_rng(1, "v")
    assert initializers.constant(3)((2,), np.float32, rng).tolist() == [3.0, 3.0]
    assert initializers.constant([1, 2])((2, 2), np.float32, rng).tolist() == [[1.0, 2.0], [1.0, 2.0]]
    with pytest.raises(ValueError, match="could not broadcast"):
        initializers.constant([1, 2, 3])((2,), np.float32, rng)


def test_a_maker_used_as_an_initializer_is_an_error():
    with pytest.raises(TypeError, match=r"normal\(\) takes 0 positional arguments"):
        initializers.normal((2,), np.float32, variable_rng(1, "v"))
