"""The servers of a warm start: ``python -m benchmarks.startup_servers N`` starts them, with N Dask workers.

It prints their addresses and the environment variables that a command needs to use them, and ends them at the end of
its standard input.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.tasks.prefect_server.local_server import LocalPrefectServer

__all__ = ["main"]

CLUSTER_TIMEOUT_SECS = 60.0


def main(num_slots: int) -> None:
    """Start Prefect server and cluster, say how to use them, and wait for the end of standard input."""
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


if __name__ == "__main__":
    main(int(sys.argv[1]))
