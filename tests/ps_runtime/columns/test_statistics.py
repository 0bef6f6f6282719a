from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from psflow.ps_runtime.columns import statistics
from psflow.ps_runtime.columns.statistics import RESERVOIR_SIZE, Moments, Reservoir, ValueCounts
from psflow.ps_runtime.errors import InputError


def test_moments_are_stable_far_from_zero() -> None:
    numbers = 1e9 + np.array([4.0, 7.0, 13.0, 16.0] * 100)
    moments = Moments()
    for chunk in np.array_split(numbers, 7):
        moments.update(chunk)
    assert moments.mean == pytest.approx(1e9 + 10, rel=1e-15)
    assert moments.standard_deviation == pytest.approx(22.5**0.5, rel=1e-9)


@pytest.mark.parametrize("parts", [1, 3])
def test_each_number_has_the_same_chance_to_be_in_a_reservoir(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    monkeypatch.setattr(statistics, "RESERVOIR_SIZE", 2)
    chosen = np.zeros(5)
    for seed in range(1500):
        reservoir = Reservoir(seed, "x")
        for chunk in np.array_split(np.arange(5), parts):
            reservoir.update(chunk)
        chosen[reservoir.quantiles([0, 1]).astype(int)] += 1
    # 600 of 1500 are expected, with a standard deviation of 19
    assert chosen.sum() == 2 * 1500
    assert chosen.min() > 600 - 4 * 19
    assert chosen.max() < 600 + 4 * 19


def test_a_reservoir_depends_on_seed_and_column_and_not_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESERVOIR_SIZE", 50)
    shares = np.linspace(0, 1, 50)

    def sampled(seed: int, column: str, parts: int) -> list[float]:
        reservoir = Reservoir(seed, column)
        for chunk in np.array_split(np.arange(1000), parts):
            reservoir.update(chunk)
        quantiles: list[float] = reservoir.quantiles(shares).tolist()
        return quantiles

    assert sampled(1, "x", 1) == sampled(1, "x", 7) == sampled(1, "x", 300)
    assert sampled(1, "x", 1) != sampled(2, "x", 1)
    assert sampled(1, "x", 1) != sampled(1, "y", 1)


def test_the_rank_error_of_quantiles_is_as_documented() -> None:
    numbers = np.random.default_rng(5).permutation(400_000)
    reservoir = Reservoir(7, "x")
    for chunk in np.array_split(numbers, 4):
        reservoir.update(chunk)
    shares = np.linspace(0.01, 0.99, 99)
    errors = np.abs(reservoir.quantiles(shares) / len(numbers) - shares)
    assert errors.max() <= (np.log(2 / 0.001) / (2 * RESERVOIR_SIZE)) ** 0.5 <= 0.0062


def test_values_come_by_falling_count_then_in_their_order() -> None:
    words = ValueCounts("x")
    words.update_strings(pa.array(["b", "a", None, "c"]))
    words.update_strings(pa.array(["c", "é", "B"]))
    assert words.by_count() == ("c", "B", "a", "b", "é")
    numbers = ValueCounts("x")
    numbers.update_numbers(np.array([10.0, 9.0, 2.5, 2.5]))
    assert numbers.by_count() == (2.5, 9.0, 10.0)


def test_too_many_strings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_VOCABULARY", 3)
    words = ValueCounts("user")
    words.update_strings(pa.array([1, 2, 3, 1]))
    with pytest.raises(InputError, match=r"'user' has more than 3 different values, .* set hash_buckets instead"):
        words.update_strings(pa.array([2, 4]))


def test_a_text_is_no_string() -> None:
    ValueCounts("story").update_strings(pa.array(["a", "x" * 1000]))
    with pytest.raises(InputError, match="'story' has a text of 1,001 characters, but a string has at most 1,000"):
        ValueCounts("story").update_strings(pa.array(["a", "x" * 1001]))
