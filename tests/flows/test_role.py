"""``psflow role`` replaces itself by a program, with its role in TF_CONFIG."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from psflow.flows import cli

CLUSTER = {"chief": ["w:1"], "worker": ["w:2"], "ps": ["p:1"]}
FLAGS = ["--ps_hosts", "p:1", "--worker_hosts", "w:1,w:2", "--job_name"]
PS = json.dumps({"cluster": CLUSTER, "task": {"type": "ps", "index": 0}})


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Collect what would be run in the place of this process; ``main.py`` is a program."""
    monkeypatch.chdir(tmp_path)
    Path("main.py").touch()
    found: list[Any] = []

    def execve(*given: Any) -> None:
        found.extend(given)
        sys.exit(0)  # it never returns

    monkeypatch.setattr(os, "execve", execve)
    return found


@pytest.mark.parametrize(
    ("flags", "task"),
    [
        (["worker", "--task_index", "0"], {"type": "chief", "index": 0}),
        (["worker", "--task_index", "1"], {"type": "worker", "index": 0}),
        (["ps", "--task-index", "0"], {"type": "ps", "index": 0}),
        (["evaluator", "--task_index", "0"], {"type": "evaluator", "index": 0}),
    ],
)
def test_flags_become_tf_config(started: list[Any], flags: list[str], task: dict[str, Any]) -> None:
    assert cli.run(["role", *FLAGS, *flags, "main.py"]) == 0
    program, arguments, environment = started
    assert (program, arguments) == (sys.executable, [sys.executable, "main.py"])
    assert json.loads(environment["TF_CONFIG"]) == {"cluster": CLUSTER, "task": task}
    assert environment["PATH"] == os.environ["PATH"]


def test_what_follows_the_program_is_its_own(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", PS)
    assert cli.run(["role", "main.py", "--job_name", "x", "--json", "--", "-v"]) == 0
    assert started[1][1:] == ["main.py", "--job_name", "x", "--json", "--", "-v"]
    assert started[2]["TF_CONFIG"] == PS


REFUSED = [
    (
        ["main.py"],
        None,
        "expected flags or TF_CONFIG for the role; give --ps_hosts, --worker_hosts, --job_name, --task",
    ),
    (
        [*FLAGS, "ps", "main.py"],
        None,
        "--task_index missing: a role needs --ps_hosts, --worker_hosts, --job",
    ),
    (
        [*FLAGS, "ps", "--task_index", "1", "main.py"],
        None,
        "--task_index should be 0, as --ps_hosts has 1 address",
    ),
    (
        [*FLAGS, "ps", "--task_index", "0", "main.py"],
        PS,
        "expected either TF_CONFIG or flags to define the role, got both",
    ),
    (["main.py"], "{", "TF_CONFIG should be a JSON object, got '{'"),
    (["main.py"], "{}", "expected TF_CONFIG with cluster, and task.type of a role in it"),
    (
        ["main.py"],
        json.dumps({"cluster": CLUSTER, "task": {"type": "client"}}),
        "expected TF_CONFIG with cluster, and task.type of a role in it",
    ),
    (["other.py"], PS, "there is no file other.py; name the Python program to run"),
]


@pytest.mark.parametrize(("arguments", "tf_config", "fault"), REFUSED)
def test_what_is_refused(
    started: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tf_config: str | None,
    fault: str,
) -> None:
    if tf_config is not None:
        monkeypatch.setenv("TF_CONFIG", tf_config)
    assert cli.run(["role", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"psflow: {fault}")
    assert started == []
