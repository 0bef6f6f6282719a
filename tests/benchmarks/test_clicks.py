"""The log of clicks, what is made of it, and the figures of a run."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import pytest

from benchmarks import peer
from benchmarks.click_log import BATCH_SIZE, CROSSED_IDS, conf_of, write_click_log
from benchmarks.clicks import CASES, TreeWatch, examples_per_sec
from psflow.flows.parameters.configuration import read_settings
from psflow.flows.parameters.train import parse_parameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.estimator.attempt import Attempt


def test_a_log_is_always_the_same_and_has_blanks_of_each_kind(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_click_log(tmp_path / name, 2000)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    rows = list(csv.DictReader((tmp_path / "a").open()))
    assert len(rows) == 2000
    assert all(0 < sum(row[name] == "" for row in rows) < 300 for name in ("site", "price", "age"))
    assert 300 < sum(row["clicked"] == "1" for row in rows) < 1000


def test_the_configuration_alone_makes_tables_of_its_ids(tmp_path: Path) -> None:
    write_click_log(tmp_path / "clicks.csv", 1200)
    conf = tmp_path / "clicks.yaml"
    conf.write_text(conf_of(tmp_path / "clicks.csv", tmp_path / "model", 10, num_ps=2, num_workers=1))
    settings = read_settings([str(conf)])
    parameters = parse_parameters(settings.values, settings.origins)
    assert (parameters.cluster.ps, parameters.cluster.workers) == (2, 1)
    training = build_training(parameters)
    with Attempt(training.estimator, training.train_spec, None) as attempt:
        sizes = {table.name: table.num_rows for table in attempt.plan.model.tables}
    assert sizes["linear/linear_model/user_x_ad/weights"] == CROSSED_IDS
    assert len(sizes) == 5


def test_the_warm_up_does_not_count() -> None:
    reports = [(10, 0.0), (20, 5.0), (30, 6.0), (100, 13.0)]
    assert examples_per_sec(reports, 100) == pytest.approx(10 * BATCH_SIZE)


def test_a_run_is_watched_with_all_that_it_starts() -> None:
    with TreeWatch([os.getpid()]) as watch:
        pass
    assert watch.peak_bytes > 2**20
    assert watch.cpu_secs[os.getpid()] > 0


def test_the_program_of_the_peer_imports_nothing_of_psflow() -> None:
    text = (peer.PROGRAM.parent / "tf_clicks.py").read_text()
    imported = {line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported - set(sys.stdlib_module_names) == {"tensorflow", "benchmarks"}
    assert f"{1_000_000:_}" in text
    assert [shape.num_replicas for shape in CASES.values()] == [1, 2]
