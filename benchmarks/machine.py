"""The machine of a measurement."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.peer import find_peer

__all__ = ["machine_facts"]


def machine_facts() -> dict[str, Any]:
    """Return processor, memory, system and versions, as plain data."""
    peer = find_peer()
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "load": round(os.getloadavg()[0], 2),
        "python": ".".join(map(str, sys.version_info[:3])),
        "numpy": np.__version__,
        "distributed": version("distributed"),
        "peer": None if peer is None else f"TensorFlow Estimator {peer.version}",
    }


def _cpu_model() -> str:
    try:
        facts = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    return facts.partition("model name")[2].partition("\n")[0].lstrip("\t :") or platform.machine()
