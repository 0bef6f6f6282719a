"""A synthetic log of clicks as CSV, and the configuration of a wide and deep model for it.

The columns are two keys of many values (user and ad), a category and numbers with missing values, and the click as a
label. `benchmarks.peers.tf_clicks` defines the same columns for TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["BATCH_SIZE", "CROSSED_IDS", "conf_of", "write_click_log"]

BATCH_SIZE = 1024
CROSSED_IDS = 10_000_000
NUM_USERS, NUM_ADS, NUM_SITES = 200_000, 20_000, 50
MISSING_SHARE = 0.05
BLOCK_ROWS = 100_000

CONF = """\
experiment: clicks
seed: 1
model_dir: {model_dir}
model:
  name: DNNLinearCombinedClassifier
  params:
    n_classes: 2
    linear_feature_columns: [user_x_ad, user, ad, site]
    dnn_feature_columns: [user, ad, site, price, age]
    dnn_hidden_units: [64, 32]
input:
  train:
    format: csv
    path: {path}
    label: clicked
    columns:
      user: {{hash_buckets: 1000000, embedding: 8}}
      ad: {{hash_buckets: 100000, embedding: 8}}
      site: {{hash_buckets: 100, impute: none, embedding: 4}}
      price: {{impute: mean, normalize: standard}}
      age: {{impute: mean, normalize: standard}}
    crosses: {{user_x_ad: {{columns: [user, ad], hash_buckets: {crossed_ids}}}}}
    batch_size: {batch_size}
  eval: {{format: csv, path: {path}, part: [0, 0.01], batch_size: {batch_size}}}
eval: {{steps: 1}}
cluster: {{ps: {num_ps}, workers: {num_workers}}}
train: {{max_steps: {max_steps}, save_checkpoints_secs: 600}}
"""


def conf_of(path: Path, model_dir: Path, max_steps: int, num_ps: int = 1, num_workers: int = 0) -> str:
    """Return the configuration, as YAML; `num_workers` are those beside the chief."""
    return CONF.format(
        path=path,
        model_dir=model_dir,
        max_steps=max_steps,
        num_ps=num_ps,
        num_workers=num_workers,
        crossed_ids=CROSSED_IDS,
        batch_size=BATCH_SIZE,
    )


def write_click_log(path: Path, num_rows: int) -> None:
    """Write a log of so many rows, always the same ones.

    Users and ads follow a power law; a click depends on the site, the price, the ad and a taste of each user for a
    tenth of the ads.
    """
    random = np.random.default_rng(20)
    liking, quality = random.integers(0, 10, NUM_USERS), random.normal(size=NUM_ADS)
    of_site = random.normal(size=NUM_SITES)
    with path.open("w") as file:
        file.write("user,ad,site,price,age,clicked\n")
        for start in range(0, num_rows, BLOCK_ROWS):
            size = min(BLOCK_ROWS, num_rows - start)
            user, ad = (
                (count * random.random(size) ** power).astype(int) for count, power in ((NUM_USERS, 2), (NUM_ADS, 3))
            )
            site, price, age = random.integers(0, NUM_SITES, size), random.random(size) * 100, random.random(size) * 60
            score = 3.0 * (liking[user] == ad % 10) + 0.7 * quality[ad] + of_site[site] - price / 50 - 0.5
            clicked = random.random(size) < 1 / (1 + np.exp(-score))
            missing = random.random((3, size)) < MISSING_SHARE
            columns = zip(user, ad, site, price, age, clicked, *missing, strict=True)
            file.writelines(
                f"u{u:06x},a{a:05x},{'' if no_site else f's{s}'},{'' if no_price else f'{p:.2f}'},"
                f"{'' if no_age else f'{18 + g:.0f}'},{c:d}\n"
                for u, a, s, p, g, c, no_site, no_price, no_age in columns
            )
