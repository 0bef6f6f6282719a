from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
from psflow.ps_runtime.cluster.fast_exit import leave_quickly
class Garbage:
    def __del__(self):
        print("looked for")
garbage = [Garbage()]
garbage.append(garbage)
del garbage
if {is_quick}:
    leave_quickly(), leave_quickly()
"""


def test_a_process_that_ends_looks_for_no_garbage() -> None:
    """It shows by a finalizer, which only who looks for garbage finds to be called."""
    said = [
        subprocess.run([sys.executable, "-c", PROGRAM.format(is_quick=is_quick)], capture_output=True, text=True).stdout
        for is_quick in (False, True)
    ]
    assert said == ["looked for\n", ""]
