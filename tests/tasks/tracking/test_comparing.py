from __future__ import annotations

import pytest
from mlflow.entities import Metric, Run

from psflow.flows.inspect.runs import diff
from psflow.ps_runtime.errors import UsageError
from psflow.tasks.tracking.comparing import differences, find_run, run_facts
from psflow.tasks.tracking.run import DatasetInfo, open_run
from psflow.tasks.tracking.store import mlflow_client, prepare_store
from tests.new_databases import copy_store


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepare_store(copy_store(tmp_path_factory.mktemp("runs")))


def record(uri: str, job: str, rate: float, digest: str, loss: float) -> Run:
    client = mlflow_client(uri)

    def resume(params: dict[str, object]) -> Run:
        return open_run(
            client,
            experiment="e",
            run_name=f"e-{job}",
            run_id=None,
            params=params,
            tags={
                "psflow.job_id": job,
                "psflow.version": "1",
                "psflow.model_dir": f"runs/{job}",
                "psflow.code_digest": f"c{digest}",
            },
            datasets=[DatasetInfo(name="csv", context="train", digest=digest, schema={}, source="t.csv")],
        )

    resume({"rate": 1.0, "seed": 7})
    run = resume({"rate": rate, "seed": 7})
    client.log_batch(
        run.info.run_id,
        [Metric("loss", loss, 0, 1), Metric("system/memory", loss, 0, 1), Metric("role/ps-0/rss_mb", loss, 0, 1)],
    )
    return client.get_run(run.info.run_id)


@pytest.fixture(scope="module")
def runs(uri: str) -> tuple[Run, Run]:
    return record(uri, "one", 0.1, "abc", 0.5), record(uri, "two", 0.2, "abd", 0.25)


def test_only_differences_are_reported_with_the_last_value_of_a_parameter(runs: tuple[Run, Run]) -> None:
    assert differences(run_facts(runs[0]), run_facts(runs[1])) == {
        "params": {"rate": ("0.1", "0.2")},
        "datasets": {"train": ("csv abc", "csv abd")},
        "code": {"psflow.code_digest": ("cabc", "cabd")},
        "metrics": {"loss": ("0.5", "0.25")},
    }
    with_machine = differences(*(run_facts(run, of_the_machine=True) for run in runs))
    assert list(with_machine["metrics"]) == ["loss", "role/ps-0/rss_mb", "system/memory"]


def test_a_run_is_found_by_its_id_the_beginning_of_it_and_its_name(uri: str, runs: tuple[Run, Run]) -> None:
    client = mlflow_client(uri)
    run_id, other = (run.info.run_id for run in runs)
    prefix = next(run_id[:length] for length in range(1, 33) if run_id[:length] != other[:length])
    assert {find_run(client, text).info.run_id for text in (run_id, prefix, "e-one")} == {run_id}


@pytest.mark.parametrize("text", ["nope", "ffffffffffffffffffffffffffffffff", "it's", "", "%"])
def test_what_is_no_run_is_refused(uri: str, runs: tuple[Run, Run], text: str) -> None:
    with pytest.raises(UsageError, match="expected a run by its id, a prefix of its id, or its name; there is no"):
        find_run(mlflow_client(uri), text)


def test_what_names_several_runs_is_refused_with_their_ids(uri: str) -> None:
    client = mlflow_client(uri)
    experiment = client.create_experiment("twins")
    ids = [client.create_run(experiment, run_name="twin").info.run_id for _ in range(7)]
    with pytest.raises(
        UsageError, match=r"'twin' names 7 in the MLflow store .*, and 2 more; give more of an id"
    ) as told:
        find_run(client, "twin")
    assert sum(run_id in str(told.value) for run_id in ids) == 5


def test_people_read_a_line_for_each_difference(
    uri: str, runs: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    answer = diff("e-one", "e-two")
    assert answer.lines is not None
    assert [line.split() for line in answer.lines[2:]] == [
        [],
        ["params"],
        ["rate", "0.1", "->", "0.2"],
        [],
        ["datasets"],
        ["train", "csv", "abc", "->", "csv", "abd"],
        [],
        ["code"],
        ["psflow.code_digest", "cabc", "->", "cabd"],
        [],
        ["metrics"],
        ["loss", "0.5", "->", "0.25"],
    ]
    same = diff("e-one", runs[0].info.run_id)
    assert same.lines is not None
    assert same.lines[-1] == "no difference"
    assert not any(same.facts["differences"].values())
