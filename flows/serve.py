"""Serves the deployments: starts runs on request or on their schedule."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from types import FrameType
from typing import Any, NoReturn, Self
from uuid import UUID

import httpx
import psutil
from prefect import Flow
from prefect.deployments.runner import RunnerDeployment
from prefect.logging import get_logger
from prefect.runner import Runner
from prefect.schedules import Schedule
from prefect.types.entrypoint import EntrypointType

from psflow.flows.parameters.configuration import Conf, PipelineParameters, pipeline_parameters, read_conf, resolve
from psflow.flows.planning.building import schedule_of
from psflow.flows.prefect_runs import overlap_tag
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.config.files import is_override
from psflow.ps_runtime.deadline import stop_clock
from psflow.ps_runtime.errors import ConfigError, UsageError
from psflow.ps_runtime.redaction import secret_keys
from psflow.tasks.orphaned_runs import FLOW_RUN_TAG, close_orphaned_runs, note_cancelling
from psflow.tasks.prefect_server.api import check_named_api, named_api_url, prefect_api
from psflow.tasks.started_servers import found
from psflow.tasks.tracking.store import prepare_store, reason_of

FLOWS = ("pipeline", "train", "evaluate", "export", "predict")
OF_A_CONFIGURATION = ("pipeline", "train")


def general() -> list[RunnerDeployment]:
    """Return a deployment of each flow, under its own name, without default parameters."""
    return [_deployment(name, name, {}, [FLOW_RUN_TAG], None) for name in FLOWS]


def configured(arguments: Sequence[str]) -> list[RunnerDeployment]:
    """Return the deployments of configurations, named after their experiments.

    Raises
    ------
    ConfigError
        If one of them, or its schedule, is wrong.
    UsageError
        If two have the same experiment, or overrides come without a configuration.
    """
    overrides = [text for text in arguments if is_override(text)]
    files = [text for text in arguments if text not in overrides]
    if overrides and not files:
        raise UsageError((f"{overrides[0]}: expected a configuration file to override, such as conf/digits.yaml",))
    deployments: list[RunnerDeployment] = []
    experiments: dict[str, str] = {}
    for file in files:
        conf = read_conf([file, *overrides])
        experiment = pipeline_parameters(conf).experiment
        if experiment in experiments:
            raise UsageError(
                (f"{experiments[experiment]} and {file} both name the experiment {experiment!r}; rename one",)
            )
        experiments[experiment] = file
        deployments += _of(conf)
    return deployments


def _of(conf: Conf) -> list[RunnerDeployment]:
    parameters = pipeline_parameters(conf)
    _check_no_secrets(conf, parameters)
    training = resolve(parameters.training()).model_dump(mode="json")
    defaults: dict[str, dict[str, Any]] = {
        "train": training,
        "pipeline": training | {"pipeline": parameters.pipeline.model_dump(mode="json")},
    }
    wanted = conf.sections.schedule
    tags = [FLOW_RUN_TAG, parameters.experiment]
    schedules: dict[str, Schedule] = {}
    overlap: dict[str, list[str]] = {}
    if wanted is not None:
        schedules[wanted.flow] = schedule_of(wanted, conf.settings.origins)
        overlap[wanted.flow] = [overlap_tag(wanted.overlap)]
    return [
        _deployment(
            name,
            parameters.experiment,
            {"parameters": defaults[name]},
            [*tags, *overlap.get(name, ())],
            schedules.get(name),
        )
        for name in OF_A_CONFIGURATION
    ]


def _check_no_secrets(conf: Conf, parameters: PipelineParameters) -> None:
    """Refuse credentials: Prefect stores the parameters of a deployment, and shows them in its UI."""
    keys = secret_keys(parameters.model_dump(mode="json"))
    if keys:
        raise ConfigError(
            tuple(
                f"{conf.settings.origin(key) or 'a default'}: {key}: expected no credentials in a served "
                "configuration, which Prefect stores and shows; pass them to fsspec by its configuration files or "
                "environment variables"
                for key in keys
            )
        )


def _deployment(
    flow_name: str, name: str, parameters: dict[str, Any], tags: list[str], schedule: Schedule | None
) -> RunnerDeployment:
    module = importlib.import_module(f"psflow.flows.{flow_name}")
    flow: Flow[Any, Any] = getattr(module, f"{flow_name}_flow")
    deployment = RunnerDeployment.from_flow(
        flow,
        name=name,
        parameters=parameters,
        tags=tags,
        schedule=schedule,
        entrypoint_type=EntrypointType.MODULE_PATH,  # independent of installation and working directory
    )
    schema = deployment._parameter_openapi_schema  # no public API
    _chosen_first({"properties": schema.properties}, parameters, schema.definitions)
    return deployment


def _chosen_first(schema: dict[str, Any], value: Any, definitions: Mapping[str, Any]) -> None:
    """Put the alternative of `value` first in each choice of a schema: among equals, forms open the first one.

    The Prefect UI counts the keys that a value shares with an alternative, and all models have the same two.
    """
    schema = _resolved(schema, definitions)
    if "anyOf" in schema:
        choice = schema["anyOf"]
        meant = next((each for each in choice if _fits(_resolved(each, definitions), value)), choice[0])
        choice.insert(0, choice.pop(choice.index(meant)))
        schema = _resolved(meant, definitions)
    if isinstance(value, Mapping):
        for key in schema.get("properties", {}).keys() & value.keys():
            _chosen_first(schema["properties"][key], value[key], definitions)


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Return whether `value` is a mapping with keys of `schema` only, and with the constants of that alternative."""
    fields = schema.get("properties", {})
    return isinstance(value, Mapping) and all(
        key in fields and each in fields[key].get("enum", [each]) for key, each in value.items()
    )


def _resolved(schema: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


CLOSE_EVERY_SECS = 30.0
CLOSE_SECS = 60.0
"""Timeout of the last check; a hanging server may take that long."""
RUNS_SECS = 6.0
"""Time for runs to end gracefully; what they do not record in time is recorded later."""
NOTE_SECS = 0.5
"""Timeout for Prefect to record that runs are cancelling, after all have ended."""
RUN = "prefect.engine"
"""Module that Prefect runs as the program of a flow run."""
RUN_ID = "PREFECT__FLOW_RUN_ID"
"""Environment variable with the id of the flow run."""

_log = get_logger("psflow")


def serve(arguments: Sequence[str], limit: int | None = None) -> NoReturn:
    """Serve the flows until a signal comes. Blocks.

    Raises
    ------
    UsageError
        If a configuration is wrong, or there is no permanent Prefect server.
    SystemExit
        With 128 + the number of the signal.
    """
    deployments = [*general(), *configured(arguments)]
    if named_api_url() is None and found().prefect_api_url is None:
        raise UsageError(("no permanent Prefect server is known; start one with psflow up, or set PREFECT_API_URL",))
    check_named_api()
    prepare_store()  # before concurrent runs try to create it
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # else it logs closed connections of Prefect's runner
    ending = _Ending()
    with prefect_api(), _closing_orphaned_runs():
        runner = _Runner(ending, limit)
        for deployment in deployments:
            runner.add_deployment(deployment)
            when = "" if not deployment.schedules else ", on its schedule"
            _log.info("serving %s%s", deployment.full_name, when)
        with ending.at_ctrl_c(), suppress(KeyboardInterrupt):
            asyncio.run(runner.start())
    raise SystemExit(128 + (ending.received or signal.SIGINT))


class _Ending:
    """Ends runs gracefully at the first signal, as the runner would kill them; a second signal does not wait."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        if self.received is None:
            self.received = signal.Signals(number)
            stop_clock.begin(self.received)
            _end_runs(self.received)
        raise KeyboardInterrupt

    @contextmanager
    def at_ctrl_c(self) -> Iterator[None]:
        """Handle SIGINT during a block; the runner handles SIGTERM."""
        previous = signal.signal(signal.SIGINT, self)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)


def _end_runs(received: signal.Signals) -> None:
    """Terminate the runs of the runner, and kill those that do not end in time, with their descendants."""
    runs, owners = [], {}
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # the process has just ended
            if RUN in child.cmdline():
                with suppress(psutil.AccessDenied):  # some systems raise it for a child, too
                    if (run_id := child.environ().get(RUN_ID)) is not None:
                        owners[UUID(run_id)] = ProcessId.of(child.pid)
                child.terminate()
                runs.append(child)
    marking = _marking(owners, f"ended by {received.name} to psflow serve")
    _, slow = psutil.wait_procs(runs, RUNS_SECS)
    for run in slow:
        with suppress(psutil.Error):
            for process in (*run.children(recursive=True), run):
                process.kill()
    marking.join(stop_clock.limited(NOTE_SECS))


def _marking(runs: Mapping[UUID, ProcessId], why: str) -> threading.Thread:
    """Mark runs as cancelling in a thread, so that a slow Prefect server does not shorten their time to end."""

    def note() -> None:
        try:
            if runs:
                note_cancelling(runs, why)
        except Exception as error:  # the client may raise anything; the runs end anyway
            _log.warning("Prefect has not marked its runs as cancelling, the next check does: %s", reason_of(error))

    thread = threading.Thread(target=contextvars.copy_context().run, args=[note], name="psflow-ending", daemon=True)
    thread.start()
    return thread


class _Runner(Runner):
    """Handles SIGTERM like Ctrl-C, and survives an unavailable Prefect API.

    Prefect's own runner exits at once on SIGTERM, despite active runs; and it gives up and kills active runs after
    three consecutive failures of the API.
    """

    def __init__(self, ending: _Ending, limit: int | None) -> None:
        super().__init__(pause_on_shutdown=True, limit=limit)
        self._ending = ending

    def handle_sigterm(self, number: int, frame: FrameType | None) -> NoReturn:
        self._ending(number, frame)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        poller: Any = self._scheduled_run_poller  # no public API
        poller._get_and_submit_flow_runs = _PatientPoller(poller._get_and_submit_flow_runs)
        return self


class _PatientPoller:
    """Polls the Prefect API for runs to start; treats a failure as no runs, and logs it once."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        self._ask = ask
        self._is_away = False

    async def __call__(self) -> None:
        try:
            await self._ask()
        except (httpx.TransportError, httpx.HTTPStatusError) as error:
            if (
                isinstance(error, httpx.HTTPStatusError)
                and error.response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR
            ):
                raise
            if not self._is_away:
                _log.warning("the Prefect API does not answer, retrying until it does: %s", reason_of(error))
            self._is_away = True
            return
        if self._is_away:
            _log.warning("the Prefect API answers again")
        self._is_away = False


@contextmanager
def _closing_orphaned_runs() -> Iterator[None]:
    """Mark runs of killed processes as ended: now, every half minute, and at the end."""
    over = threading.Event()

    def close() -> None:
        while not over.is_set():
            close_orphaned_runs()
            over.wait(CLOSE_EVERY_SECS)
        close_orphaned_runs()

    context = contextvars.copy_context()  # holds Prefect's settings
    thread = threading.Thread(target=context.run, args=[close], name="psflow-orphaned-runs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(stop_clock.limited(CLOSE_SECS))
