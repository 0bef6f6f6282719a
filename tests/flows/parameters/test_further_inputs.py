"""Keys of columns in evaluations: neither different from the training input, nor without effect."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from pydantic import ValidationError

from psflow.flows.parameters.configuration import resolve, write_config
from psflow.flows.parameters.stages import EvaluateParameters
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.replay.plan import found_training
from psflow.ps_runtime.config.files import load
from psflow.ps_runtime.errors import ConfigError

COLUMNS = """\
features: [age, job]
columns: {age: {impute: mean}, job: {hash_buckets: 8}}
groups: {features: numeric}
weight: w
key_columns: [id]
label: {column: income, classes: [low, high]}
"""
CONF = """\
experiment: t
model: {{name: LinearClassifier, params: {{n_classes: 2}}}}
input:
  train:
    format: csv
    path: t.csv
{train}
  eval:
    format: {format}
    path: {path}
{eval}
train: {{max_steps: 2}}
"""


def conf(tmp_path: Path, evaluation: str = "", format: str = "csv", train: str = COLUMNS) -> str:
    path = tmp_path / "t.yaml"
    text = CONF.format(train=indent(train, " " * 4), eval=indent(evaluation, " " * 4), format=format, path="e")
    path.write_text(text)
    return str(path)


def read(path: str, *overrides: str) -> TrainParameters:
    settings = load([path], overrides)
    return parse_parameters(settings.values, settings.origins)


@pytest.mark.parametrize("evaluation", ["", COLUMNS, "label: other_name", "columns: {}\nfeatures: null"])
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_an_evaluation_says_nothing_of_columns_or_the_same(tmp_path: Path, evaluation: str, format: str) -> None:
    assert read(conf(tmp_path, evaluation, format)).input.eval


def test_how_text_is_read_is_a_matter_of_each_input(tmp_path: Path) -> None:
    keys = "delimiter: ;\ncolumn_names: [age, job, w, id, income]\nna_values: ['?']\nencoding: latin-1"
    assert read(conf(tmp_path, keys)).input.eval


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("features", "[age]"),
        ("columns", "{age: {impute: median}}"),
        ("groups", "{features: [age]}"),
        ("weight", "v"),
        ("key_columns", "[id, name]"),
    ],
)
def test_what_differs_is_refused_with_its_line(tmp_path: Path, key: str, value: str) -> None:
    path = conf(tmp_path, f"{key}: {value}")
    line = Path(path).read_text().splitlines().index(f"    {key}: {value}") + 1
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert caught.value.faults == (
        f"{path}:{line}: input.eval.{key}: differs from input.train.{key}: later inputs are read like "
        "the training input of the model; leave it out",
    )


def test_all_that_differ_are_reported_together(tmp_path: Path) -> None:
    further = "evals.held.input={format: jsonl, path: h.jsonl, features: [job], label: {column: y, classes: [a, b]}}"
    with pytest.raises(ConfigError) as caught:
        read(conf(tmp_path, "features: [age]"), further)
    faults = [fault.partition(" differs")[0].removeprefix(str(tmp_path)) for fault in caught.value.faults]
    assert faults == [
        "/t.yaml:17: input.eval.features:",
        "command line: evals.held.input.features:",
        "command line: evals.held.input.label.classes:",
    ]


def test_columns_of_an_evaluation_are_refused_if_training_reads_arrays(tmp_path: Path) -> None:
    path = conf(tmp_path, "features: [age]")
    with pytest.raises(ConfigError, match=r"input\.eval\.features: differs"):
        read(path, "input.train={format: digits}")
    assert read(conf(tmp_path, "label: y\nkey_columns: [id]"), "input.train={format: digits}")


def test_forms_refuse_it_too(tmp_path: Path) -> None:
    values = load([conf(tmp_path, "weight: v")]).values
    with pytest.raises(ValidationError, match=r"input\.eval\.weight: differs from input\.train\.weight"):
        TrainParameters.model_validate(values)


def test_overrides_of_a_replay_are_refused_too(tmp_path: Path) -> None:
    write_config(str(tmp_path), resolve(read(conf(tmp_path), f"model_dir={tmp_path}"), 1))
    replay = EvaluateParameters(model_dir=str(tmp_path), overrides=("input.eval.features=[age]",))
    with pytest.raises(ConfigError, match=r"command line: input\.eval\.features: differs from input\.train\.features"):
        found_training(replay)


def test_how_labels_are_normalized_is_said_in_training_alone(tmp_path: Path) -> None:
    label = "label: {column: price, normalize: standard}"
    assert read(conf(tmp_path, label, train=label)).input.eval
    with pytest.raises(ConfigError, match=r"input.eval.label.normalize: differs from normalize of input.train.label"):
        read(conf(tmp_path, label, train="label: price"))


def test_an_evaluation_has_a_part_of_its_own(tmp_path: Path) -> None:
    assert read(conf(tmp_path, "part: [0.9, 1]", train="part: [0, 0.9]")).input.eval
    with pytest.raises(ConfigError, match=r"part is \[0.9, 0.1\], expected two ascending numbers"):
        read(conf(tmp_path, "part: [0.9, 0.1]"))
