from __future__ import annotations

from pathlib import Path

import pytest

from psflow.flows.parameters.configuration import read_config, resolve, write_config
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.config.files import load
from psflow.ps_runtime.errors import ConfigError

HOLDOUT = ("evals.holdout.input.format=csv", "evals.holdout.input.path=held.csv", "evals.holdout.input.label=y")


def read(digits: str, *overrides: str) -> TrainParameters:
    settings = load([digits], overrides)
    return parse_parameters(settings.values, settings.origins)


def test_further_evaluations_come_after_the_one_that_chooses(digits: str, tmp_path: Path) -> None:
    overrides = (*HOLDOUT, "evals.quick.input.format=digits", "evals.quick.steps=1", f"model_dir={tmp_path}")
    first, *further = build_training(read(digits, *overrides)).eval_specs
    assert (first.name, [exporter.name for exporter in first.all_exporters]) == (None, ["best"])
    assert [(spec.name, spec.steps, spec.all_exporters) for spec in further] == [
        ("holdout", None, ()),
        ("quick", 1, ()),
    ]
    assert further[1].input_fn().num_epochs == 1


def test_their_files_are_found_from_any_directory(digits: str, tmp_path: Path) -> None:
    write_config(str(tmp_path), resolve(read(digits, *HOLDOUT), 1))
    sources = read_config(str(tmp_path)).sources()
    assert list(sources) == ["train", "eval", "eval_holdout"]
    assert sources["eval_holdout"].path == str(Path("held.csv").absolute())  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["evals.a.input.format=digits", "evals.a.stepz=3"], "evals.a.stepz: unknown key; did you mean 'steps'?"),
        (["evals.a.steps=3"], "evals.a.input: is missing"),
        (
            ["evals={b ad: {input: {format: digits}}}"],
            "evals.b ad: expected letters, digits, '_', '-' and '.', at most 100, the first one a letter, "
            "a digit or '_', got 'b ad'",
        ),
        (["eval.name=../../evil"], "eval.name: expected letters, digits, '_', '-' and '.', at most 100, the first one"),
        (["eval.name=''"], "eval.name: expected letters, digits, "),
        (["evals.a.input.format=digits", "eval.name=a"], "eval.name is 'a', which is also a name in evals"),
        (["evals.a.input.format=csv"], "evals.a.input.path: is missing"),
    ],
)
def test_what_is_wrong_with_them_is_reported(digits: str, overrides: list[str], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(digits, *overrides)
    assert fault in str(caught.value)
