"""Mistakes of the user are reported in one sentence, before anything is started or written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow.flows import cli
from psflow.flows.parameters.train import parse_parameters
from psflow.flows.planning.building import build_training
from psflow.flows.planning.training_plan import plan_attempt
from psflow.ps_runtime.config.files import load
from psflow.ps_runtime.errors import ConfigError, InputError, ModelDirError, ModelFnError, UsageError
from tests.flows.conftest import Project


@pytest.fixture(autouse=True)
def directory(table: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return table


def plan(*overrides: str) -> Any:
    loaded = load(["t.yaml"], overrides)
    return plan_attempt(parse_parameters(loaded.values, loaded.origins))


def test_what_is_right_is_planned_and_writes_nothing(directory: Path) -> None:
    assert plan().plan.model.nbytes > 0
    assert sorted(path.name for path in directory.iterdir()) == ["t.csv", "t.yaml"]


@pytest.mark.parametrize(
    ("overrides", "error", "words"),
    [
        (["input.train.path=nope.csv"], InputError, r"there is no file /.*/nope\.csv"),
        (["input.train.label=z"], InputError, r"t\.csv has no column 'z'; its columns are 'a', 'b', 'y'"),
        (["input.eval.path=less.csv"], InputError, r"less\.csv has no column 'b'; did you mean 'bb'\?"),
        (
            ["input.eval.label=b"],
            InputError,
            r"^the eval input: the label is 'b', expected 'y' as in training; correct its label$",
        ),
        (
            ["input.eval.path=unlabelled.csv"],
            InputError,
            r"unlabelled\.csv has no column 'y'; its columns are 'a', 'b'",
        ),
        (
            ["input.eval={format: idx, path: x, scale: [1, 0]}"],
            ConfigError,
            r"scale: expected two numbers, the lower one first",
        ),
        (["input.train.label=a"], InputError, r"the train input.*is 3, expected an integer in \[0, 2\)"),
        (["input.train.path=empty.csv"], InputError, r"empty\.csv"),
        (["clster.ps=2"], ConfigError, r"command line: clster: unknown key; did you mean 'cluster'\?"),
        (
            ["train.max_steps=null"],
            ConfigError,
            r"^training would never end; give train\.max_steps or input\.train\.epochs",
        ),
        (
            ["cluster.address=nonsense"],
            ConfigError,
            r"^command line: cluster\.address: expected tcp://HOST:PORT, .*, got 'nonsense'$",
        ),
        (["cluster.address=http://h:8787"], ConfigError, r"cluster\.address: expected tcp://HOST:PORT"),
        (["cluster.ps=two"], ConfigError, r"command line: cluster\.ps: .*'two'"),
        (["model.name=user_models:returns_a_number"], ModelFnError, "must return an EstimatorSpec, got float"),
        (
            ["model.name=user_models:lime"],
            ConfigError,
            r"model\.name: 'user_models' has no 'lime'; did you mean 'line'\?",
        ),
        (["model.name=user_modles:line"], ConfigError, r"model\.name: cannot import 'user_modles': No module named"),
        (
            ["model.name=user_modles:line"],
            ConfigError,
            r"looked in .*tests/flows.* and among the installed packages; put the module beside the",
        ),
        (["model.name=user_bad:line"], ConfigError, r"cannot import 'user_bad': ModuleNotFoundError: .*'nmupy'$"),
        (
            ["model.name=user_worse:line"],
            ConfigError,
            r"cannot import 'user_worse': NameError: name 'x' is not",
        ),
        (
            ["model.name=user_failing:line"],
            ModelFnError,
            r"user_failing:line raised TypeError in train mode at user_failing\.py:2: object of type 'int'",
        ),
        (
            ["best.metric=acuracy"],
            UsageError,
            r"^best\.metric: the evaluation has .*, but no metric 'acuracy'; did you mean 'accuracy'\?",
        ),
        (["model_dir=gs://bucket/m"], UsageError, r"model_dir gs://bucket/m: a job is written to a local directory or"),
        (["input.train={name: user_models:nothing}"], InputError, "the input_fn for train returned no batch"),
    ],
)
def test_each_fault_has_its_sentence(
    directory: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], error: type[UsageError], words: str
) -> None:
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    Path("empty.csv").write_text("a,b,y\n")
    Path("less.csv").write_text("a,bb,y\n1,2,0\n")
    Path("unlabelled.csv").write_text("a,b\n1,2\n")
    Path("user_bad.py").write_text("import nmupy\n")
    Path("user_worse.py").write_text("x\n")
    Path("user_failing.py").write_text("def line(features, labels, params):\n    return len(3)\n")
    before = sorted(directory.iterdir())
    with pytest.raises(error, match=words):
        plan(*overrides)
    assert sorted(directory.iterdir()) == before


def test_a_model_dir_of_another_model_is_refused_with_the_differences() -> None:
    parameters = parse_parameters(load(["t.yaml"], ["train.max_steps=2", "train.save_checkpoints_steps=2"]).values, {})
    training = build_training(parameters)
    training.estimator.train(training.train_spec.input_fn, max_steps=2)
    plan()
    words = r"(?s)runs/t holds checkpoints of another model.*'dnn/hiddenlayer_0/kernel' is float32\[2, 9\]"
    with pytest.raises(ModelDirError, match=words):
        plan("model.params.hidden_units=[9]")


def test_labels_are_judged_beyond_the_first_batch() -> None:
    labels = np.zeros(500, int)
    labels[321] = 7
    rows = np.column_stack([np.ones((500, 2)), labels])
    np.savetxt("late.csv", rows, "%d", delimiter=",", header="a,b,y", comments="")
    with pytest.raises(
        InputError,
        match=r"the label of row 323 of .*late\.csv \(the header is row 1.*\), the eval input, is 7, expected",
    ):
        plan("input.eval.path=late.csv")


@pytest.mark.process
def test_the_command_reports_what_a_function_of_the_user_raises_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("user_sentence.py").write_text("def line(features, labels, params):\n    return len(3)\n")
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    monkeypatch.setattr("psflow.flows.train.invoke", lambda flow, parameters, *_, **__: plan_attempt(parameters))
    assert cli.run(["train", "t.yaml", "model.name=user_sentence:line"]) == 2
    sentence = "psflow: user_sentence:line raised TypeError in train mode at user_sentence.py:2: object of type 'int'"
    shown = capsys.readouterr().err
    assert sentence in shown
    assert "Traceback" not in shown


@pytest.mark.cluster
def test_the_command_answers_with_the_sentence_and_exit_code_2(served_project: Project) -> None:
    Path("t.csv").unlink()
    before = sorted(served_project.path.iterdir())
    answer = served_project.run("train", "t.yaml", exit_code=2)
    assert answer["error"]["type"] == "InputError"
    assert json.dumps(answer).endswith('t.csv"}}')
    assert sorted(served_project.path.iterdir()) == before
