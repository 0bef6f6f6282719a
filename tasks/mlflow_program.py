"""The program of the MLflow server that ``psflow up`` starts, as a process of its own.

It is MLflow's own application on a listening socket that it inherits: ``mlflow server`` can only be told a port, which
somebody else may take first, and keeps a second process, which takes as much memory.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from psflow.ps_runtime.config.environment import inherited_auth_string
from psflow.tasks.basic_auth import BasicAuth

GRACE_SECS = 5


def main() -> None:
    """Run as ``python -P mlflow_program.py LISTENER_FD STORE ARTIFACT_ROOT``, with a password in the environment."""
    import uvicorn  # before mlflow.server, which finds out by it that it is a server
    from mlflow.server.handlers import initialize_backend_stores

    descriptor, store, artifact_root = sys.argv[1:]
    initialize_backend_stores(store, store, artifact_root)
    from mlflow.server.fastapi_app import app

    auth_string = inherited_auth_string()
    served: Any = app if auth_string is None else BasicAuth(app, auth_string)
    config = uvicorn.Config(served, log_level="warning", timeout_graceful_shutdown=GRACE_SECS)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(descriptor))])


if __name__ == "__main__":
    main()
