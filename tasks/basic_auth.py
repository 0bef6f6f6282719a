"""HTTP Basic authentication for all pages and the API of a local server.

Nothing here may import Prefect, MLflow or Dask. (Prefect's own authentication leaves its pages and health checks open;
that of MLflow needs additional packages and a database.)
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

USER = "psflow"
PASSWORD_BYTES = 24
LOGIN_PATH = "/psflow-login"

LOGIN_PAGE = """<!doctype html><title>psflow</title><script>
localStorage.setItem("prefect-password", "{token}");
localStorage["mlflow.workflowType_v1"] ??= '"machine_learning"';
location.replace(location.origin + "/");
</script>
"""
"""Prefect's pages read the password there, and MLflow's the view to open, which is GenAI by default.

Pages cannot load anything while their address has a password, so it is removed.
"""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]


def new_auth_string() -> str:
    """Return a user and a random password as ``user:password``."""
    return f"{USER}:{secrets.token_urlsafe(PASSWORD_BYTES)}"


def authorization(auth_string: str) -> str:
    """Return the ``Authorization`` header of a request."""
    return f"Basic {_token(auth_string)}"


def with_auth(url: str, auth_string: str | None) -> str:
    """Return an address with user and password, if there are any.

    Examples
    --------
    >>> with_auth("http://127.0.0.1:5000", "psflow:secret")
    'http://psflow:secret@127.0.0.1:5000'
    """
    if auth_string is None:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{auth_string}@{parts.netloc}"))


def login_url(url: str, auth_string: str | None) -> str:
    """Return the address that logs a browser in to the server at `url`, and opens its pages."""
    return url if auth_string is None else with_auth(url, auth_string) + LOGIN_PATH


class BasicAuth:
    """ASGI application that forwards requests with the right user and password, and refuses all others."""

    def __init__(self, application: Application, auth_string: str, *, checks_websockets: bool = False) -> None:
        self._application = application
        self._auth_string = auth_string
        self._let_in = {"lifespan", "websocket"} if checks_websockets else {"lifespan"}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Forward or refuse a request, or answer with the login page."""
        if scope["type"] in self._let_in or self._is_known(scope):
            if scope["type"] == "http" and scope["path"] == LOGIN_PATH:
                page = LOGIN_PAGE.format(token=_token(self._auth_string)).encode()
                await _answer(send, 200, (b"content-type", b"text/html"), page)
            else:
                await self._application(scope, receive, send)
        elif scope["type"] == "http":
            await _answer(send, 401, (b"www-authenticate", b'Basic realm="psflow"'), b"")
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _is_known(self, scope: Message) -> bool:
        given: bytes = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, authorization(self._auth_string).encode())


def _token(auth_string: str) -> str:
    return b64encode(auth_string.encode()).decode()


async def _answer(send: Send, status: int, header: Header, body: bytes) -> None:
    headers = [header, (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
