"""Wide and deep on a CSV of words, blanks and numbers, from a configuration alone: trained on a cluster, and predicted.

The cross of two keys has ten million ids, with weights and with vectors; a role holds the rows that it has seen.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from psflow.ps_runtime.checkpoint.store import CheckpointStore
from tests.acceptance.test_large_inputs import peaks_of
from tests.flows.conftest import Project

pytestmark = [pytest.mark.piece(number=8), pytest.mark.measured, pytest.mark.timeout(600)]

NUM_USERS, NUM_ADS = 300, 10
NUM_SEEN = NUM_USERS * NUM_ADS
CROSSED_IDS = 10_000_000
MAX_ROLE_MB = 300.0
"""Of which a process with its libraries takes about half. All rows, slots and snapshot included, take 760 MB
on each of two ps."""

CONF = f"""
experiment: clicks
seed: 1
model:
  name: DNNLinearCombinedClassifier
  params:
    linear_feature_columns: [user_x_ad, user, ad, site]
    dnn_feature_columns: [user_x_ad, site, price, age, age_is_missing]
    dnn_hidden_units: [16]
    linear_optimizer: {{name: Ftrl, learning_rate: 0.5}}
    dnn_optimizer: {{name: Adagrad, learning_rate: 0.1}}
input:
  train:
    format: csv
    path: clicks.csv
    label: {{column: clicked, classes: ["no", "yes"]}}
    key_columns: [id]
    columns:
      user: {{hash_buckets: 100000}}
      ad: {{hash_buckets: 5000, expire_after_steps: 100000}}
      site: {{impute: none, embedding: 2}}
      price: {{normalize: standard}}
      age: {{impute: median, indicator: true, normalize: standard}}
    crosses: {{user_x_ad: {{columns: [user, ad], hash_buckets: {CROSSED_IDS}, embedding: 8, admit_after: 2}}}}
    batch_size: 100
    shuffle: true
  eval: {{format: csv, path: held_out.csv, batch_size: 1000}}
cluster: {{ps: 2, workers: 2}}
train: {{max_steps: 1500, save_checkpoints_steps: 750}}
best: {{metric: accuracy, mode: max}}
"""


def write_clicks(path: Path, num_rows: int, seed: int, *, with_label: bool = True) -> list[str]:
    """Write rows whose label is a taste of the user for the ad, mostly; return the labels."""
    random = np.random.default_rng(seed)
    taste = np.random.default_rng(0).choice([-3.0, 3.0], (NUM_USERS, NUM_ADS))
    labels = []
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "user", "ad", "site", "price", "age", *["clicked"] * with_label])
        for row in range(num_rows):
            user, ad, price = random.integers(0, NUM_USERS), random.integers(0, NUM_ADS), random.random()
            label = "yes" if taste[user, ad] + 2 * price - 1 + random.normal() > 0 else "no"
            site = random.choice(["", "news", "a, b", 'the "shop"'])
            age = "" if random.random() < 0.1 else random.integers(18, 80)
            writer.writerow([f"r{row}", f"u{user}", f"a{ad}", site, f"{price:.3f}", age, *[label] * with_label])
            labels.append(label)
    return labels


@pytest.fixture
def clicks(served_project: Project, tmp_path: Path) -> Iterator[Project]:
    """Give a project with clicks to train on and to evaluate."""
    write_clicks(tmp_path / "clicks.csv", 30_000, 1)
    write_clicks(tmp_path / "held_out.csv", 3_000, 2)
    served_project.write("clicks.yaml", CONF)
    yield served_project
    shutil.rmtree(tmp_path)


def test_ten_million_crossed_ids_take_the_memory_of_those_that_came(clicks: Project) -> None:
    process = clicks.start("train", "clicks.yaml")
    _, roles = peaks_of(process)
    assert process.returncode == 0, process.communicate()[1]
    print(f"peak PSS of roles and their server, of {NUM_SEEN} rows seen of {CROSSED_IDS}:", roles)
    assert len(roles) >= 6
    assert max(roles.values()) < MAX_ROLE_MB
    store = CheckpointStore(str(clicks.path / "runs" / "clicks"))
    created: dict[str, int] = {}
    for entry in store.manifest(1500).tables:
        if entry.tensor == "ids":
            created[entry.table] = created.get(entry.table, 0) + entry.shape[0]
    weights, vectors = "linear/linear_model/{}/weights", "dnn/input_layer/{}_embedding/embedding_weights"
    assert created[weights.format("ad")] == NUM_ADS
    assert created[weights.format("user")] <= NUM_USERS
    assert created[weights.format("user_x_ad")] == created[vectors.format("user_x_ad")]
    assert 0.9 * NUM_SEEN < created[weights.format("user_x_ad")] <= NUM_SEEN
    _check_predictions(clicks)


def _check_predictions(clicks: Project) -> None:
    labels = write_clicks(clicks.path / "new.csv", 5_000, 3, with_label=False)
    clicks.run("predict", "--model", "models:/psflow-clicks@best", "--input", "new.csv", "--output", "predicted")
    predicted = parquet.read_table(clicks.path / "predicted").to_pydict()
    assert predicted["id"] == [f"r{row}" for row in range(5_000)], "each row once, in order"
    accuracy = np.mean(np.array(predicted["classes"]) == np.array(labels))
    base_rate = max(labels.count("yes"), labels.count("no")) / len(labels)
    print(f"accuracy {accuracy:.3f}, base rate {base_rate:.3f}")
    assert accuracy > base_rate + 0.3
