"""The configurations of tabular files that come with psflow, trained for a moment in this process."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from psflow.flows.parameters.configuration import read_conf
from psflow.flows.parameters.train import parse_parameters
from psflow.flows.planning.building import build_training

ROOT = Path(__file__).parents[3]
EXAMPLES = runpy.run_path(str(ROOT / "examples" / "tabular_files.py"))


def trained(name: str, num_rows: int, num_steps: int) -> dict[str, float]:
    """Write the data of a configuration, train on them, and evaluate."""
    EXAMPLES["write"](EXAMPLES[name](num_rows, seed=1), name, Path("data"))
    settings = read_conf([str(ROOT / "conf" / f"{name}.yaml")]).settings
    parameters = parse_parameters(settings.values, settings.origins)
    training = build_training(parameters)
    training.estimator.train(training.train_spec.input_fn, max_steps=num_steps)
    return training.estimator.evaluate(training.eval_specs[0].input_fn)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_incomes_are_learned_from_numbers_words_dates_and_missing_values() -> None:
    results = trained("census", 3000, 150)
    assert results["accuracy"] > results["accuracy_baseline"] + 0.03
    assert results["auc"] > 0.8


def test_prices_are_learned_in_their_own_size() -> None:
    results = trained("housing", 2000, 300)
    prices = np.array(parquet.read_table("data/housing.parquet").column("price"))
    assert 1 - results["average_loss"] / prices.var() > 0.85
    assert results["prediction/mean"] == pytest.approx(results["label/mean"], rel=0.05)
