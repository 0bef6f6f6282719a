"""The simulation of losses with many more examples, other ones at each run."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.simulation.test_survival import Survival

NUM_EXAMPLES = int(os.environ.get("PSFLOW_EXAMPLES", "1000"))

pytestmark = [pytest.mark.piece(number=5), pytest.mark.timeout(3600)]


class ManyExamples(Survival):
    """The same, for longer."""


TestManyExamples = ManyExamples.TestCase
TestManyExamples.settings = settings(max_examples=NUM_EXAMPLES, stateful_step_count=40, report_multiple_bugs=False)
