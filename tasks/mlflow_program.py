"""Program of the MLflow server that ``psflow up`` starts as a separate process.

It runs MLflow's own application on an inherited listening socket: ``mlflow server`` accepts only a port, which another
program may take first, and needs a second process with as much memory.
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
    import uvicorn  # before mlflow.server, which thereby detects that it runs in a server
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
