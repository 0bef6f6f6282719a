"""Served deployments: names, parameters, schedules, and forms in the Prefect UI."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest
import yaml
from prefect.flows import load_flow_from_entrypoint

from psflow.flows.parameters.model import CANNED
from psflow.flows.serve import FLOWS, _Ending, _PatientPoller, configured, general, serve
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.errors import ConfigError, UsageError
from psflow.tasks.started_servers import Servers

ROOT = Path(__file__).parents[2]
CONF = """
experiment: t
model: {name: "my.module:line"}
input:
  train: {format: csv, path: t.csv, label: y}
  eval: {format: csv, path: t.csv, label: y}
train: {max_steps: 4}
model_dir: "runs/t/{scheduled_time}"
"""


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def conf(text: str, name: str = "t.yaml") -> str:
    Path(name).write_text(CONF + text)
    return name


def test_each_flow_is_served_under_its_own_name() -> None:
    deployments = general()
    assert [deployment.full_name for deployment in deployments] == [f"{name}/{name}" for name in FLOWS]
    for deployment in deployments:
        assert deployment.schedules == []
        assert deployment.tags == ["psflow"]
        assert load_flow_from_entrypoint(str(deployment.entrypoint)).name == deployment.flow_name


def test_credentials_are_not_served() -> None:
    text = CONF.replace("path: t.csv", 'path: "s3://key:s3cret@bucket/t.csv"', 1)
    Path("t.yaml").write_text(text)
    words = r"^t\.yaml:5: input\.train\.path: expected no credentials in a served configuration, which Prefect stores"
    with pytest.raises(ConfigError, match=words) as refusal:
        configured(["t.yaml"])
    assert "s3cret" not in str(refusal.value)


def test_a_configuration_is_served_with_its_parameters_and_schedule(tmp_path: Path) -> None:
    pipeline, train = configured([conf('pipeline: {predict: {input: "a.csv"}}\nschedule: {cron: "0 3 * * *"}')])
    assert (pipeline.full_name, train.full_name) == ("pipeline/t", "train/t")
    assert (pipeline.tags, train.tags) == (["psflow", "t", "overlap:skip"], ["psflow", "t"])
    told = train.parameters["parameters"]
    assert told["input"]["train"]["path"] == f"{tmp_path}/t.csv"
    assert told["code_dir"] == str(tmp_path)
    assert told["model_dir"] == f"{tmp_path}/runs/t/{{scheduled_time}}"
    assert "pipeline" not in told
    assert pipeline.parameters["parameters"]["pipeline"]["predict"]["input"] == "a.csv"
    [schedule] = pipeline.schedules or []
    assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 3 * * *", "UTC")
    assert train.schedules == []


def test_an_interval_starts_what_it_names() -> None:
    pipeline, train = configured([conf("schedule: {flow: train, interval_secs: 90, overlap: queue}")])
    assert pipeline.schedules == []
    assert (pipeline.tags, train.tags) == (["psflow", "t"], ["psflow", "t", "overlap:queue"])
    assert [each.schedule.interval for each in train.schedules or []] == [timedelta(seconds=90)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schedule: {cron: 0 3 * *}", r"^t\.yaml:9: schedule\.cron: .*"),
        ("schedule: {cron: 0 3 * * *, timezone: Mars/Olympus}", r"^t\.yaml:9: schedule\.timezone: .*Mars/Olympus"),
        (
            "schedule: {interval_secs: 60, timezone: Europe/Berlin}",
            r"^t\.yaml:9: schedule\.timezone: expected it with c",
        ),
        ("schedule: {interval_secs: 1.0e+300}", r"^t\.yaml:9: schedule\.interval_secs: expected a number <= 31622400"),
        ("schedule: {cron: 3}", r"t\.yaml:9: schedule\.cron: expected a string, got 3"),
        ("schedule: {interval_secs: 60, overlap: skips}", r"^t\.yaml:9: schedule\.overlap: expected .*skip.*"),
    ],
)
def test_a_wrong_schedule_is_reported_with_its_file(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        configured([conf(text)])


def test_what_the_command_line_says_changes_each_configuration() -> None:
    files = [conf("", "a.yaml"), conf("", "b.yaml")]
    Path("b.yaml").write_text(CONF.replace("experiment: t", "experiment: u"))
    served = configured([*files, "train.max_steps=9", "schedule.interval_secs=60", "schedule.flow=train"])
    assert [each.full_name for each in served if each.schedules] == ["train/t", "train/u"]
    assert {each.parameters["parameters"]["train"]["max_steps"] for each in served} == {9}
    with pytest.raises(ConfigError, match=r"^command line: schedule\.cron: "):
        configured([files[0], "schedule.cron=99 * * * *"])
    [every_two] = [each for each in configured([files[0], "schedule.cron=*/2 * * * *"]) if each.schedules]
    assert every_two.schedules[0].schedule.cron == "*/2 * * * *"
    with pytest.raises(UsageError, match=r"^seed=3: expected a configuration file to override, such as conf/digits"):
        configured(["seed=3"])


def test_two_configurations_of_one_experiment_would_be_one_deployment() -> None:
    with pytest.raises(UsageError, match=r"a\.yaml and b\.yaml both name the experiment 't'; rename one"):
        configured([conf("", "a.yaml"), conf("", "b.yaml")])


def test_without_a_server_that_stays_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psflow.flows.serve.named_api_url", lambda: None)
    monkeypatch.setattr("psflow.flows.serve.found", lambda: Servers(None, None, {}))
    words = "no permanent Prefect server is known; start one with psflow up, or set PREFECT_API_URL"
    with pytest.raises(UsageError, match=words):
        serve([])


@pytest.mark.process
def test_a_run_that_has_just_ended_leaves_no_other_to_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = psutil.Popen([sys.executable, "-c", ""])
    gone.wait()
    program = [sys.executable, "-c", "print(flush=True); input()", "prefect.engine"]
    run = psutil.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert run.stdout.readline() == b"\n"  # it has begun, and is known by its arguments
    monkeypatch.setattr(psutil.Process, "children", lambda self: [gone, run])
    ending = _Ending()
    with pytest.raises(KeyboardInterrupt), ending.at_ctrl_c():
        signal.raise_signal(signal.SIGINT)
    assert run.wait(200) == -signal.SIGTERM
    assert ending.received is signal.SIGINT


@pytest.mark.process
def test_of_a_run_that_has_to_be_killed_as_serving_ends_prefect_knows_that_it_was_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_id = uuid4()
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); input()"
    run = psutil.Popen(
        [sys.executable, "-c", program, "prefect.engine"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PREFECT__FLOW_RUN_ID": str(run_id)},
    )
    assert run.stdout.readline() == b"\n"
    process = ProcessId.of(run.pid)
    noted: list[Any] = []
    monkeypatch.setattr("psflow.flows.serve.note_cancelling", lambda *facts: noted.append(facts))
    monkeypatch.setattr("psflow.flows.serve.NOTE_SECS", 60.0)
    monkeypatch.setattr("psflow.flows.serve.RUNS_SECS", 0.01)
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive=False: [] if recursive else [run])
    with pytest.raises(KeyboardInterrupt), _Ending().at_ctrl_c():
        signal.raise_signal(signal.SIGINT)
    assert run.wait(200) == -signal.SIGKILL
    assert noted == [({run_id: process}, "ended by SIGINT to psflow serve")]


def test_serving_outlives_an_api_that_answers_with_503_or_not_at_all(caplog: pytest.LogCaptureFixture) -> None:
    request = httpx.Request("POST", "http://h/api")
    answers = [
        httpx.HTTPStatusError("503", request=request, response=httpx.Response(503)),
        httpx.ReadTimeout("", request=request),
        None,
        httpx.HTTPStatusError("401", request=request, response=httpx.Response(401)),
    ]

    async def ask() -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    patient = _PatientPoller(ask)
    for _ in range(3):
        asyncio.run(patient())
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        asyncio.run(patient())
    assert [record.getMessage() for record in caplog.records] == [
        "the Prefect API does not answer, retrying until it does: 503",
        "the Prefect API answers again",
    ]


def test_every_field_of_every_form_has_a_title_or_type_and_a_description() -> None:
    bare = [
        (deployment.flow_name, where, name)
        for deployment in general()
        for where, model in models(deployment._parameter_openapi_schema.model_dump())
        for name, field in model.get("properties", {}).items()
        if where != "" and not is_described(field, deployment._parameter_openapi_schema.definitions)
    ]
    assert bare == []


def models(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "", schema
    yield from schema["definitions"].items()


def is_described(field: dict[str, Any], definitions: dict[str, Any]) -> bool:
    target = definitions.get(field.get("$ref", "").rpartition("/")[2], {})
    return bool(field.get("description") or target.get("description"))


def test_a_form_offers_choices_where_there_are_some() -> None:
    [train] = [each for each in general() if each.flow_name == "train"]
    definitions = train._parameter_openapi_schema.definitions
    fields = definitions["TrainParameters"]["properties"]
    assert fields["transport"]["enum"] == ["auto", "shm", "unix", "tcp"]
    assert definitions["ClusterParameters"]["properties"]["when_full"]["enum"] == ["wait", "fail"]
    options = [option["$ref"].rpartition("/")[2] for option in fields["model"]["anyOf"]]
    assert options == [*CANNED, "FunctionModel"]
    assert all(definitions[option]["description"] for option in options)


def test_a_form_opens_with_the_alternatives_that_the_configuration_names() -> None:
    for train in configured([str(ROOT / "conf" / "digits.yaml")]):
        definitions = train._parameter_openapi_schema.definitions

        def first(model: str, field: str, definitions: dict[str, Any] = definitions) -> str:
            return str(definitions[model]["properties"][field]["anyOf"][0]["$ref"].rpartition("/")[2])

        assert first("PipelineParameters" if train.flow_name == "pipeline" else "TrainParameters", "model") == (
            "DNNClassifier"
        )
        assert first("DNNClassifierParameters", "optimizer") == "AdamParameters"
        assert first("InputParameters", "train") == "DigitsInput"
    general_train = next(each for each in general() if each.flow_name == "train")
    model = general_train._parameter_openapi_schema.definitions["TrainParameters"]["properties"]["model"]
    assert len(model["anyOf"]) == len(CANNED) + 1


def test_prefect_yaml_deploys_the_same_flows() -> None:
    listed = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert tuple(each["name"] for each in listed) == FLOWS
    for each in listed:
        flow = load_flow_from_entrypoint(each["entrypoint"])
        assert flow.name == each["name"]
        assert "psflow" in each["tags"]
