"""Parts of a cold start, each in a separate process: ``python -m benchmarks.startup_parts NAME`` prints its seconds.

``servers N`` starts the servers of a warm start, with N workers. It prints their addresses and the environment
variables that a command needs to use them, and ends them at the end of its standard input.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from functools import partial
from typing import Any

__all__ = ["NUM_SLOTS", "PARTS", "main"]

CLUSTER_TIMEOUT_SECS = 60.0
NUM_SLOTS = 4
"""A ps, the chief, a worker, the evaluator."""


def imports() -> float:
    """Import what the command for training imports."""
    started = time.monotonic()
    import mlflow  # noqa: F401

    import psflow.flows.train  # noqa: F401

    return time.monotonic() - started


def prefect_server() -> float:
    """Start the local Prefect server until it answers, with a new database where PREFECT_HOME has none."""
    from psflow.tasks.prefect_server.local_server import LocalPrefectServer

    started = time.monotonic()
    server = LocalPrefectServer()
    server.wait()
    secs = time.monotonic() - started
    server.close()
    return secs


def mlflow_store() -> float:
    """Import MLflow and make its store, new where there is none."""
    from psflow.tasks.tracking.store import prepare_store

    started = time.monotonic()
    prepare_store()
    return time.monotonic() - started


def cluster() -> float:
    """Start a local cluster of four until all workers are there."""
    started = time.monotonic()
    from psflow.ps_runtime.cluster.connecting import open_cluster

    with open_cluster(None, NUM_SLOTS, CLUSTER_TIMEOUT_SECS):
        return time.monotonic() - started


def job() -> float:
    """Plan a job and start its roles on a cluster that is there, until the first step of a replica."""
    from benchmarks.models import mlp
    from psflow import Estimator, EvalSpec, Event, FirstStep, TrainSpec, train_and_evaluate
    from psflow.ps_runtime.cluster.connecting import open_cluster

    first_steps: list[float] = []

    def take(event: Event) -> None:
        if isinstance(event, FirstStep):
            first_steps.append(time.monotonic())

    input_fn = partial(mlp.input_fn, {})
    with open_cluster(None, NUM_SLOTS, CLUSTER_TIMEOUT_SECS) as client, tempfile.TemporaryDirectory() as directory:
        started = time.monotonic()
        train_and_evaluate(
            Estimator(mlp.model_fn, directory),
            TrainSpec(input_fn, max_steps=100),
            EvalSpec(input_fn, steps=1),
            client=client,
            num_workers=1,
            on_event=take,
        )
    return first_steps[0] - started


def serve(num_slots: int) -> None:
    """Start Prefect server and cluster, say how to use them, and wait for the end of standard input."""
    from psflow.ps_runtime.cluster.connecting import open_cluster
    from psflow.tasks.prefect_server.local_server import LocalPrefectServer

    server = LocalPrefectServer()
    try:
        with open_cluster(None, num_slots, CLUSTER_TIMEOUT_SECS) as client:
            address = client.scheduler_info(n_workers=0)["address"]
            prefect = {"PREFECT_API_URL": server.wait(), "PREFECT_API_AUTH_STRING": server.auth_string}
            environment = prefect | certificates(client.security)
            print(json.dumps({"address": address, "environment": environment}), flush=True)
            sys.stdin.read()
    finally:
        server.close()


def certificates(security: Any) -> dict[str, str]:
    """Return the environment in which the configuration of Dask names the certificates of a client in `security`."""
    texts = {"CA_FILE": security.tls_ca_file, "CLIENT__KEY": security.tls_client_key}
    texts["CLIENT__CERT"] = security.tls_client_cert
    return {f"DASK_DISTRIBUTED__COMM__TLS__{name}": text for name, text in texts.items()}


PARTS = {
    "imports": imports,
    "prefect-server": prefect_server,
    "mlflow-store": mlflow_store,
    "cluster": cluster,
    "job": job,
}


def main(name: str, num_slots: str = "") -> None:
    """Run a part and print its seconds, or serve."""
    if name == "servers":
        serve(int(num_slots))
    else:
        print(json.dumps({"secs": PARTS[name]()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
