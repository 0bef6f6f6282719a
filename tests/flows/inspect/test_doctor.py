from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from psflow.flows import cli
from psflow.flows.inspect.doctor import (
    Level,
    cluster_findings,
    directory_finding,
    doctor,
    machine_findings,
    version_findings,
)

PACKAGES = {"psflow": "0.1.0", "python": "3.11.7.final.0", "dask": "1", "distributed": "1", "numpy": "2.4"}


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("psflow.ps_runtime.cluster.connecting.CONNECT_TIMEOUT_SECS", 0.2)
    return tmp_path


def versions(scheduler: dict[str, Any], *workers: dict[str, Any]) -> dict[str, Any]:
    return {
        "client": {"packages": PACKAGES},
        "scheduler": {"packages": PACKAGES | scheduler},
        "workers": {f"tcp://w{i}": {"packages": PACKAGES | worker} for i, worker in enumerate(workers)},
    }


@pytest.mark.parametrize(
    ("scheduler", "workers", "expected"),
    [
        ({}, [{}, {"python": "3.11.9.final.0"}], [("ok", "the same on the scheduler and all workers")]),
        (
            {},
            [{"psflow": None}, {"psflow": None}],
            [
                (
                    "fault",
                    "psflow is 0.1.0 here, worker tcp://w0 and 1 more lacks it; install the same version everywhere",
                )
            ],
        ),
        (
            {"dask": "2", "numpy": "1"},
            [{}],
            [
                ("fault", "dask is 1 here, the scheduler has 2; install the same version everywhere"),
                ("warning", "numpy is 2.4 here, the scheduler has 1; install the same version everywhere"),
            ],
        ),
    ],
)
def test_versions_that_differ_are_reported_with_whose_they_are(
    scheduler: dict[str, Any], workers: list[dict[str, Any]], expected: list[tuple[str, str]]
) -> None:
    assert [(f.level, f.text) for f in version_findings(versions(scheduler, *workers))] == expected


def test_a_directory_is_really_written_to_and_left_as_it_was(directory: Path) -> None:
    finding = directory_finding(directory)
    assert finding.level is Level.OK
    assert "GB free, 1 MB written and synced in" in finding.text
    assert directory_finding(directory / "to" / "be" / "made").text.startswith(f"{directory}: ")
    assert list(directory.iterdir()) == []


def test_a_directory_that_cannot_be_written_to_is_a_fault() -> None:
    finding = directory_finding(Path("/proc"))
    assert finding.level is Level.FAULT
    assert finding.text.startswith("/proc: expected to write 1 MB, got ")
    assert finding.text.endswith("; free space or correct permissions")


def test_scarce_space_is_a_warning(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psflow.flows.inspect.doctor.SCARCE_BYTES", 1 << 60)
    assert directory_finding(directory).level is Level.WARNING


def test_the_machine_of_these_tests_is_well() -> None:
    assert {finding.level for finding in machine_findings()} == {Level.OK}


def test_a_cluster_that_is_well_runs_a_task(directory: Path) -> None:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
    ) as few:
        findings = list(cluster_findings(few.scheduler_address, directory))
    assert [(f.level, f.topic) for f in findings[1:]] == [("ok", t) for t in ("cluster", "versions", "disk", "task")]
    assert (findings[0].level, findings[0].topic) == ("warning", "security")
    assert findings[1].text == f"{few.scheduler_address}; workers: 2, slots: 2"
    assert list(directory.iterdir()) == []


def test_workers_that_see_another_disk_are_a_warning(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
    ) as one:
        findings = list(cluster_findings(one.scheduler_address, directory / "elsewhere"))
    (warning,) = [finding for finding in findings if finding.level is Level.WARNING and finding.topic == "disk"]
    assert "1 of 1 workers" in warning.text
    assert f"cannot see {directory}/elsewhere; use a model_dir on a file system that all hosts share" in warning.text


def test_a_cluster_without_workers_is_a_fault(directory: Path) -> None:
    with LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0") as none:
        _, finding = cluster_findings(none.scheduler_address, directory)
    assert finding.level is Level.FAULT
    assert finding.text.endswith(f"has no workers; start workers: dask worker {none.scheduler_address}")


def test_a_fault_makes_the_exit_code_1_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    answer = io.StringIO()
    assert cli.run(["doctor", "--address", "tcp://127.0.0.1:1", "--json"], answer) == 1
    facts = json.loads(answer.getvalue())
    assert (facts["faults"], facts["warnings"]) == (2, 0)
    faults = [finding["text"] for finding in facts["findings"] if finding["level"] == "fault"]
    assert faults[0].endswith("start it, or correct MLFLOW_TRACKING_URI")
    assert faults[1].startswith("no Dask scheduler answers at tcp://127.0.0.1:1 within 0.2 s")


def test_what_is_no_address_is_refused_before_anything_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["doctor", "--address", "nonsense"]) == 2
    expected = "psflow: --address: expected tcp://HOST:PORT, or tls:// with certificates, got 'nonsense'\n"
    assert capsys.readouterr().err == expected


@pytest.mark.cluster
def test_without_an_address_a_cluster_is_started_for_a_moment() -> None:
    answer = doctor(None)
    assert answer.exit_code == 0
    assert answer.lines is not None
    assert answer.lines[-1] == "no faults"
    assert {"topic": "task", "level": "ok"}.items() <= answer.facts["findings"][-1].items()
