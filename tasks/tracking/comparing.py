"""Finds MLflow runs by name or id, and compares two of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.redaction import without_secrets

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Run

RUN_ID = re.compile(r"[0-9a-f]{1,32}")
MAX_SHOWN = 5
CODE_TAGS = ("psflow.version", "psflow.code_digest", "mlflow.source.")
LATER_PARAM = "psflow.param."
"""Prefix of tags with the last value of a parameter that a resume has changed."""
OF_THE_MACHINE = ("role/", "system/")
"""Prefixes of metrics of processes and processors, which differ between any two runs."""


@dataclass(frozen=True)
class RunFacts:
    """Records of a run: per topic, by name, as text."""

    run_id: str
    name: str
    status: str
    topics: Mapping[str, Mapping[str, str]]


def find_run(client: MlflowClient, text: str) -> Run:
    """Return the run with the id, a prefix of the id, or the name `text`; deleted runs are ignored.

    Raises UsageError if there is none, or more than one.
    """
    found = _search(client, f"attributes.run_name = '{text}'") if "'" not in text else []
    if RUN_ID.fullmatch(text):
        found += [run for run in _search(client, f"attributes.run_id LIKE '{text}%'") if run.info.run_name != text]
    exact = [run for run in found if run.info.run_id == text]
    if len(exact or found) == 1:
        return (exact or found)[0]
    where = f"in the MLflow store {without_secrets(client.tracking_uri)}"
    if not found:
        raise UsageError((f"expected a run by its id, a prefix of its id, or its name; there is no {text!r} {where}",))
    shown = ", ".join(f"{run.info.run_name} ({run.info.run_id})" for run in found[:MAX_SHOWN])
    more = f", and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
    raise UsageError((f"expected one run, {text!r} names {len(found)} {where}: {shown}{more}; give more of an id",))


def run_facts(run: Run, *, of_the_machine: bool = False) -> RunFacts:
    """Return the latest records of `run`: parameters, data sets, code, final metrics."""
    tags = run.data.tags
    later = {key.removeprefix(LATER_PARAM): value for key, value in tags.items() if key.startswith(LATER_PARAM)}
    inputs = run.inputs.dataset_inputs if run.inputs else []
    datasets = {_context(entry): f"{entry.dataset.name} {entry.dataset.digest}" for entry in inputs}
    return RunFacts(
        run.info.run_id,
        run.info.run_name,
        run.info.status,
        {
            "params": {**run.data.params, **later},
            "datasets": datasets,
            "code": {key: value for key, value in tags.items() if key.startswith(CODE_TAGS)},
            "metrics": {
                key: f"{value:.6g}"
                for key, value in run.data.metrics.items()
                if of_the_machine or not key.startswith(OF_THE_MACHINE)
            },
        },
    )


def differences(first: RunFacts, second: RunFacts) -> dict[str, dict[str, tuple[str | None, str | None]]]:
    """Return both values of all differences between two runs, by topic and name; None: not recorded."""
    return {
        topic: {
            name: (left.get(name), right.get(name))
            for name in sorted(left.keys() | right.keys())
            if left.get(name) != right.get(name)
        }
        for topic, left, right in ((topic, first.topics[topic], second.topics[topic]) for topic in first.topics)
    }


def _search(client: MlflowClient, words: str) -> list[Run]:
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return list(client.search_runs(experiments, words))


def _context(entry: DatasetInput) -> str:
    from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

    tags = {tag.key: tag.value for tag in entry.tags}
    return str(tags.get(MLFLOW_DATASET_CONTEXT, "data"))
