"""What the page on extending psflow adds trains through its configuration; ``make acceptance`` runs its pipeline."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from psflow.flows.parameters.configuration import read_settings
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.errors import ConfigError, UsageError
from psflow.ps_runtime.estimator.planning import plan_job
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from tests.extending import write_project

MODULES = ("my_optimizer", "my_schedule", "my_format", "my_model")


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a directory with the files of the page and the data that they read."""
    write_project(tmp_path)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def parameters(*overrides: str) -> TrainParameters:
    settings = read_settings(["plane.yaml", *overrides])
    return parse_parameters(settings.values, settings.origins)


@pytest.mark.usefixtures("_folder")
def test_the_configuration_of_the_page_finds_the_plane() -> None:
    training = build_training(parameters())
    training.estimator.train(training.train_spec.input_fn, max_steps=training.train_spec.max_steps)
    assert training.estimator.get_variable_value("weights") == pytest.approx([2.0, -1.0], abs=0.05)
    assert training.estimator.evaluate(training.eval_specs[0].input_fn)["loss"] < 0.01


@pytest.mark.usefixtures("_folder")
def test_an_optimizer_of_a_user_trains_a_model_of_psflow() -> None:
    lion = "{name: my_optimizer:Lion, learning_rate: 0.01, beta1: 0.8}"
    model = f"model={{name: DNNClassifier, params: {{hidden_units: [4], optimizer: {lion}}}}}"
    estimator = build_training(parameters(model)).estimator
    assert estimator.params["optimizer"].config() == {"name": "my_optimizer:Lion", "beta1": 0.8, "beta2": 0.99}


HALVING = "{name: my_schedule:Halving, learning_rate: 0.4, halve_every: 10}"


@pytest.mark.parametrize(
    ("rate", "of_steps"),
    [
        (HALVING, {0: 0.4, 10: 0.2, 25: 0.1}),
        (f"{{name: LinearWarmup, learning_rate: {HALVING}, warmup_steps: 20}}", {0: 0.0, 10: 0.1, 25: 0.1}),
        (f"{{name: ChainedSchedules, schedules: [{HALVING}, {HALVING}], boundaries: [15]}}", {14: 0.2, 15: 0.4}),
    ],
)
@pytest.mark.usefixtures("_folder")
def test_a_schedule_of_a_user_is_a_learning_rate_of_an_optimizer_of_psflow(
    rate: str, of_steps: dict[int, float]
) -> None:
    model = f"{{name: LinearRegressor, params: {{optimizer: {{name: Momentum, learning_rate: {rate}}}}}}}"
    optimizer = build_training(parameters(f"model={model}")).estimator.params["optimizer"]
    assert {step: optimizer.learning_rate_at(step) for step in of_steps} == pytest.approx(of_steps)


@pytest.mark.usefixtures("_folder")
def test_a_configuration_is_read_without_the_code_of_a_schedule() -> None:
    given = parameters("model.params.optimizer={name: Adam, learning_rate: {name: nowhere:Halving}}")
    assert "nowhere:Halving" in given.model_dump_json()


@pytest.mark.usefixtures("_folder")
def test_a_ps_receives_no_schedule_of_a_user() -> None:
    model = f"{{name: LinearRegressor, params: {{optimizer: {{name: Momentum, learning_rate: {HALVING}}}}}}}"
    training = build_training(parameters(f"model={model}"))
    plan = plan_job(training.estimator.caller, training.train_spec, (), 1, 1, lambda *_: None, KeptInputs("nowhere"))
    assert b"my_schedule" in pickle.dumps(training.estimator.params["optimizer"])
    assert b"my_schedule" not in pickle.dumps(plan.optimizers)


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("model.params.l3=1", r"model\.params: l3: unknown key; known here: l2, optimizer"),
        ("model.params.l2=-1", r"model\.params: l2: expected a number >= 0.0, got -1"),
        (
            "model.params.optimizer={name: my_optimizer:Lion, beta_1: 0.5}",
            r"optimizer my_optimizer:Lion: beta_1: unknown key; did you mean 'beta1'\?",
        ),
        ("model.params.optimizer={name: my_optimizer:Lyon}", r"optimizer my_optimizer:Lyon: .* did you mean 'Lion'\?"),
        ("model.params.optimizer={name: my_format:JsonLines}", r"expected a subclass of .*:Optimizer, got <class"),
        (
            "model.params.optimizer.learning_rate={name: nowhere:Halving}",
            r"learning_rate nowhere:Halving: cannot import 'nowhere': .*put the module beside the configuration file",
        ),
        (
            "model.params.optimizer.learning_rate={name: my_schedule:Halfing}",
            r"learning_rate my_schedule:Halfing: .* did you mean 'Halving'\?",
        ),
        (
            "model.params.optimizer.learning_rate={name: my_schedule:Halving, learning_rate: 1}",
            r"learning_rate my_schedule:Halving: halve_every: is missing",
        ),
        (
            "model.params.optimizer.learning_rate={name: my_optimizer:Lion}",
            r"learning_rate my_optimizer:Lion: expected a subclass of .*:Schedule, got",
        ),
        ("input.train={format: my_format:JsonLines}", r"format my_format:JsonLines: path: is missing"),
        ("input.train={format: nowhere:JsonLines}", r"format nowhere:JsonLines: cannot import 'nowhere'"),
    ],
)
@pytest.mark.usefixtures("_folder")
def test_a_slip_in_the_keys_of_a_class_of_a_user_is_told(override: str, fault: str) -> None:
    with pytest.raises((ConfigError, UsageError), match=fault):
        build_training(parameters(override))
