"""The Prefect server does not answer for minutes: a served training goes on, and no second one begins."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.acceptance.conftest import Served, wait_for
from tests.acceptance.test_overlap import MODEL, SLOW, START_SECS, due, trained

pytestmark = [pytest.mark.piece(number=4), pytest.mark.timeout(1800)]

AWAY_SECS = 360.0
TRAINING_SECS = 420
"""More than the server is away, and long enough to be skipped for."""


def test_a_training_goes_on_while_the_server_is_away_for_six_minutes(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    (tmp_path / "slow_points.py").write_text(MODEL)
    (tmp_path / "slow.yaml").write_text(SLOW % TRAINING_SECS)
    served = serve(f"{tmp_path}/slow.yaml")
    runs = served.project.path / "runs" / "slow"

    def steps() -> list[int]:
        return sorted(int(path.parent.name[5:]) for path in runs.glob("*/checkpoints/*/manifest.json"))

    wait_for(steps, START_SECS, "a checkpoint")
    [run] = trained(due(served))
    servers = json.loads((served.project.path / "prefect" / "psflow-servers.json").read_text())
    [server] = [psutil.Process(each["process"]["pid"]) for each in servers if each["kind"] == "prefect"]
    stopped_at, before = time.monotonic(), steps()
    server.suspend()
    try:
        wait_for(lambda: time.monotonic() - stopped_at > AWAY_SECS, AWAY_SECS + 60.0, "six minutes")
        after = steps()
    finally:
        server.resume()
    assert after[-1] - before[-1] > AWAY_SECS / 4
    assert len(list(runs.iterdir())) == 1
    wait_for(lambda: served.state(run.id) == "COMPLETED", 2 * TRAINING_SECS, "the training")
    ended = served.client.read_flow_run(run.id).end_time
    assert ended is not None
    assert [each.id for each in trained(due(served)) if each.start_time and each.start_time < ended] == [run.id]
