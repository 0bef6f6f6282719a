"""What a command must know of the servers that a warm start finds."""

from __future__ import annotations

import dask

from benchmarks.startup_servers import certificates
from psflow.ps_runtime.cluster.own_security import own_security


def test_certificates_reach_a_command_in_its_environment() -> None:
    security = own_security()
    known = dask.config.collect_env(certificates(security))
    for key, expected in (
        ("ca-file", security.tls_ca_file),
        ("client.key", security.tls_client_key),
        ("client.cert", security.tls_client_cert),
    ):
        assert dask.config.get(f"distributed.comm.tls.{key}", config=known) == expected
