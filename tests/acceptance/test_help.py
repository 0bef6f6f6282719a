"""How long a person waits for help."""

from __future__ import annotations

import subprocess
import time

import pytest

from tests.flows.conftest import PSFLOW

pytestmark = pytest.mark.piece(number=7)


@pytest.mark.measured
def test_help_answers_in_under_half_a_second() -> None:
    def secs() -> float:
        start = time.perf_counter()
        subprocess.run([PSFLOW, "--help"], check=True, capture_output=True, timeout=60)
        return time.perf_counter() - start

    assert min(secs() for _ in range(3)) < 0.5
