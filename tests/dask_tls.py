"""The certificates of a cluster, as somebody names them in the configuration of Dask."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import dask


def certificates_named(security: Any) -> AbstractContextManager[Any]:
    """Have the configuration of Dask name those of a client in `security`, for the time of a block."""
    files = {"ca-file": security.tls_ca_file, "client.key": security.tls_client_key}
    files["client.cert"] = security.tls_client_cert
    return dask.config.set({f"distributed.comm.tls.{key}": content for key, content in files.items()})
