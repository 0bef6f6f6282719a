"""What the fork server imports; each worker of a local cluster is a copy of it.

Importing this changes the process, so nobody else does. No import may start a thread: a copy would lack it.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
from contextlib import suppress

import numpy as np

IMPORTS = (
    "ps_runtime.cluster.role_task",
    "safetensors.numpy",
    "scipy.sparse",
    # what a Dask worker imports as it starts
    "distributed.http.prometheus",
    "distributed.http.worker",
    "distributed.nanny",
    "prometheus_client",
    "tornado.platform.asyncio",
)


def _prepare() -> None:
    for name in IMPORTS:
        with suppress(ImportError):  # the worker that misses it will say so
            importlib.import_module(name)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # those to a whole group, as Ctrl-C, are for the owner of the cluster
    os.register_at_fork(after_in_child=np.random.seed)  # else all copies draw the same numbers
    gc.collect()
    gc.freeze()  # the collector would write to shared pages


_prepare()
