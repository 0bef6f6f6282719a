from __future__ import annotations

from pathlib import Path

import pytest

from psflow.flows.parameters.configuration import Conf, PipelineParameters, read_conf, read_settings
from psflow.flows.parameters.parsing import parse_as
from psflow.flows.parameters.train import parse_parameters
from psflow.ps_runtime.errors import ConfigError, UsageError
from tests.flows.conftest import TABLE_CONF


def conf(tmp_path: Path, text: str, *overrides: str) -> Conf:
    (tmp_path / "t.yaml").write_text(TABLE_CONF + text)
    return read_conf([f"{tmp_path}/t.yaml", *overrides])


def test_flags_win_over_overrides_over_files_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TABLE_CONF + "seed: 3")
    read = read_settings([f"{tmp_path}/t.yaml", "resume.fork=a"], {"--fork": ("resume.fork", "b")})
    assert read.values["resume"] == {"fork": "b"}
    assert [str(read.origin(key)).rpartition("/")[2] for key in ("resume.fork", "seed")] == ["--fork", "t.yaml:8"]
    assert str(read.origin("code_dir")) == f"directory of {tmp_path}/t.yaml"
    assert parse_parameters(read.values, read.origins).code_dir == str(tmp_path)


def test_there_must_be_a_file() -> None:
    with pytest.raises(UsageError, match=r"expected at least one configuration file, such as conf/digits\.yaml"):
        read_settings(["seed=3"])


def test_what_no_file_has_is_missed_in_all_of_them(tmp_path: Path) -> None:
    for name, text in (
        ("a.yaml", "experiment: t"),
        ("b.yaml", TABLE_CONF.partition("input:")[0]),
        ("c.yaml", "# later"),
    ):
        (tmp_path / name).write_text(text)
    a, b, c = (f"{tmp_path}/{name}.yaml" for name in "abc")
    read = read_settings([a, b, c])
    with pytest.raises(ConfigError, match=rf"^{a}, {b}, {c}: input: is missing$"):
        parse_parameters(read.values, read.origins)
    with pytest.raises(ConfigError, match=rf"^{c}: is empty; expected a configuration$"):
        read_settings([c])


def test_the_configuration_of_a_job_is_one_of_the_directory_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "copy" / "config.yaml"
    file.parent.mkdir()
    file.write_text(f"{TABLE_CONF}model_dir: /old")

    def found(*overrides: str) -> tuple[str, str]:
        read = read_settings([str(file), *overrides])
        return read.values["model_dir"], str(read.origin("model_dir"))

    assert found() == ("/old", f"{file}:8")  # it is not that of a job
    (file.parent / "job.json").touch()
    assert found() == (str(file.parent), f"directory of {file}")
    assert found("model_dir=new") == ("new", "command line")
    (tmp_path / "link").symlink_to(file.parent)
    file.write_text(f"{TABLE_CONF}model_dir: {tmp_path}/link")
    assert found() == (f"{tmp_path}/link", f"{file}:8")  # which is the same


def test_training_does_not_see_the_sections_of_others(tmp_path: Path) -> None:
    read = conf(tmp_path, "schedule: {cron: 0 3 * * *}\npipeline: {predict: {input: a.csv}}")
    assert parse_parameters(read.settings.values, read.settings.origins).experiment == "t"
    assert read.sections.schedule is not None
    assert (read.sections.schedule.flow, read.sections.schedule.cron) == ("pipeline", "0 3 * * *")
    assert read.sections.pipeline.chosen == ("train", "evaluate", "export", "predict")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schedule: {crom: 0 3 * * *}", r"t\.yaml:8: schedule\.crom: unknown key; did you mean 'cron'\?"),
        ("schedule: {}", r"t\.yaml:8: schedule: expected cron or interval_secs, got both or none"),
        ("schedule: {cron: 0 3 * * *, interval_secs: 3}", "schedule: expected cron or interval_secs, got both or none"),
        ("schedule: {interval_secs: 0.5}", r"schedule\.interval_secs: expected a number >= 1\.0, got 0\.5"),
        ("pipeline: {stages: [trian]}", r"pipeline\.stages\.0: expected .*'trian'; did you mean 'train'\?"),
        ("pipeline: {stages: []}", r"t\.yaml:8: pipeline\.stages: expected at least 1 item, got \[\]"),
        (
            "pipeline: {evaluate: {checkpoints: al}}",
            r"t\.yaml:8: pipeline\.evaluate\.checkpoints: expected all, .*'al'",
        ),
        ("pipeline: {export: {checkpoint: all}}", r"pipeline\.export\.checkpoint: expected best, latest, or a step"),
        (
            "pipeline: {export: {checkpoint: latest, metric: auc, mode: max}}",
            r"pipeline\.export: metric and mode choose the best checkpoint: expected checkpoint 'best', got 'latest'",
        ),
        ("pipeline: {stages: [predict]}", r"pipeline: the stage predict needs pipeline\.predict\.input"),
        ("pipeline: {export: {metric: auc}}", r"pipeline\.export: expected both metric and mode \(min or max\)"),
        ("pipline: {}", r"t\.yaml:8: pipline: unknown key"),
    ],
)
def test_every_command_checks_them(tmp_path: Path, text: str, words: str) -> None:
    def parsed() -> None:
        read = conf(tmp_path, text)
        parse_parameters(read.settings.values, read.settings.origins)

    with pytest.raises(ConfigError, match=words):
        parsed()


def test_stages_run_in_their_order_whatever_the_order_they_are_named_in(tmp_path: Path) -> None:
    assert conf(tmp_path, "").sections.pipeline.chosen == ("train", "evaluate", "export")
    assert conf(tmp_path, "", "pipeline.stages=[export,train]").sections.pipeline.chosen == ("train", "export")


def test_a_pipeline_gets_the_settings_of_training(tmp_path: Path) -> None:
    read = conf(tmp_path, "pipeline: {predict: {input: a.csv}}")
    values = {**read.settings.values, "pipeline": read.sections.pipeline.model_dump(mode="json")}
    parameters = parse_as(PipelineParameters, values, {})
    assert PipelineParameters.model_validate(parameters.model_dump(mode="json")) == parameters
    assert parameters.training() == parse_parameters(read.settings.values, read.settings.origins)


@pytest.mark.parametrize("path", ["runs/{}", "runs/{time}", "runs/{scheduled_time", "runs/}"])
def test_a_placeholder_that_stands_for_nothing_is_refused(tmp_path: Path, path: str) -> None:
    read = conf(tmp_path, f"model_dir: '{path}'")
    with pytest.raises(ConfigError, match=r"model_dir: unknown placeholder '.*', expected \{scheduled_time\} or none"):
        parse_parameters(read.settings.values, read.settings.origins)
