from __future__ import annotations

from pathlib import Path

import pytest

from psflow.flows.parameters.configuration import has_config, read_config, read_settings, resolve, write_config
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.config.files import load
from psflow.ps_runtime.errors import ConfigError

CONF = """
experiment: t
model: {name: "my.module:line", params: {rate: 1e-3, name: "1e-3", "no": "no", units: [4, 5], none: null}}
input:
  train: {format: csv, path: t.csv, label: y}
  eval: {format: csv, path: "s3://key:secret@bucket/t.csv", label: y}
train: {max_steps: 2, save_checkpoints_steps: 2}
resume: {allow_changes: true}
"""


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text(CONF)
    for model_dir in ("m", "runs/t"):
        Path(model_dir).mkdir(parents=True)


def parsed(*overrides: str) -> TrainParameters:
    return parse_parameters(load(["t.yaml"], overrides).values, {})


def test_what_is_written_is_read_again_and_is_a_configuration_of_its_own(tmp_path: Path) -> None:
    parameters = resolve(parsed(), seed=7)
    assert not has_config("runs/t")
    write_config("runs/t", parameters)
    assert has_config("runs/t")
    assert read_config("runs/t") == parameters
    assert parse_parameters(load([tmp_path / "runs/t/config.yaml"]).values, {}) == parameters


def test_it_means_the_same_from_another_directory(tmp_path: Path) -> None:
    parameters = resolve(parsed("code_dir=src"), seed=7)
    assert parameters.model_dir == f"{tmp_path}/runs/t"
    assert parameters.code_dir == f"{tmp_path}/src"
    assert parameters.input.train.path == f"{tmp_path}/t.csv"  # type: ignore[union-attr]
    assert parameters.input.eval.path == "s3://key:secret@bucket/t.csv"  # type: ignore[union-attr]
    assert resolve(parameters) == parameters


def test_a_checkpoint_to_start_from_is_found_from_another_directory(tmp_path: Path) -> None:
    parameters = resolve(parsed("warm_start={checkpoint: runs/old, variables: [dnn, bias], rename: {a: b}}"), seed=7)
    assert parameters.warm_start is not None
    assert parameters.warm_start.checkpoint == f"{tmp_path}/runs/old"
    settings = parameters.warm_start.build()
    assert settings.patterns == ("dnn", "bias")
    assert settings.previous_names == {"a": "b"}
    write_config("runs/t", parameters)
    assert read_config("runs/t") == parameters


def test_the_seed_of_the_job_fills_an_open_one_only() -> None:
    assert resolve(parsed(), seed=7).seed == 7
    assert resolve(parsed("seed=3"), seed=7).seed == 3


def test_what_was_asked_of_one_start_is_not_kept() -> None:
    write_config("m", resolve(parsed("resume.fork=elsewhere"), seed=7))
    assert "resume" not in Path("m/config.yaml").read_text()
    assert read_config("m").resume.fork is None


def test_a_directory_that_was_moved_is_found_where_it_is(tmp_path: Path) -> None:
    write_config("runs/t", resolve(parsed(), seed=7))
    Path("runs").rename("old")
    assert read_config("old/t").model_dir == f"{tmp_path}/old/t"


def test_a_configuration_at_a_url_resumes_the_job_there(tmp_path: Path) -> None:
    here, there = f"memory://{tmp_path.name}/run", f"memory://{tmp_path.name}/moved"
    written = resolve(parsed(f"model_dir={here}"), seed=7)
    for model_dir in (here, there):
        write_config(model_dir, written)
        FileStore(model_dir).put("job.json", b"{}")
        settings = read_settings([f"{model_dir}/config.yaml", "train.max_steps=9"])
        found = parse_parameters(settings.values, settings.origins)
        assert (FileStore(found.model_dir).root, found.train.max_steps, found.seed) == (FileStore(model_dir).root, 9, 7)
    with pytest.raises(ConfigError, match=r"^memory://\S+/none/config.yaml: there is no such file"):
        read_settings([f"memory://{tmp_path.name}/none/config.yaml"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, r"m/config\.yaml: there is no such file, expected the configuration of a training; name its model_dir"),
        (b"\xff", r"m/config\.yaml: expected UTF-8 text, got the byte 0xff"),
        (b"- 1", r"m/config\.yaml:1: expected a mapping of keys to values, got list"),
        (b"", r"m/config\.yaml is empty; remove it, and start with the configuration file of that training"),
        (b"experiment: t", r"m/config\.yaml: model: is missing\n.*m/config\.yaml: input: is missing"),
        (b"a: [", r"m/config\.yaml:1: "),
        (b"experiment: t\nmodle: 3", r"m/config\.yaml:2: modle: unknown key; did you mean 'model'\?"),
    ],
)
def test_a_damaged_one_is_reported_with_its_place(content: bytes | None, words: str) -> None:

    if content is not None:
        Path("m/config.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        read_config("m")
