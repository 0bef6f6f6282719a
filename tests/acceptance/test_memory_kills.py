"""A worker whose input does not fit into the memory that a Dask cluster of the user's gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

from psflow import SessionRunHook, TrainSpec, train_and_evaluate
from psflow.ps_runtime.errors import RoleLostError
from tests.ps_runtime.cluster.test_training import EVAL, endless, estimator

pytestmark = [pytest.mark.piece(number=4), pytest.mark.timeout(400), pytest.mark.cluster]

LIMIT_BYTES = 512 * 2**20


class Hungry(SessionRunHook):
    """Takes all memory that a Dask worker may have, in each worker but the chief."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if not run_context.session.is_chief:
            self.held = np.ones(LIMIT_BYTES, np.uint8)


def test_a_worker_that_takes_too_much_memory_is_named_with_the_limit(tmp_path: Path) -> None:
    train_spec = TrainSpec(endless, 10**8, [Hungry()])
    with (
        dask.config.set({"temporary-directory": str(tmp_path)}),
        LocalCluster(n_workers=4, threads_per_worker=1, memory_limit=LIMIT_BYTES, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        with pytest.raises(
            RoleLostError,
            match=r"^worker-0 failed: the nanny of its Dask worker tcp://127\.0\.0\.1:\d+ killed it at \S+ MiB "
            r"of its limit of 512\.00 MiB; raise memory_limit, or make batches smaller$",
        ):
            train_and_evaluate(estimator(tmp_path), train_spec, EVAL, client=client, num_workers=1, max_restarts=0)
        client.wait_for_workers(4, timeout=200)  # a nanny that closes while its process begins leaves some behind
