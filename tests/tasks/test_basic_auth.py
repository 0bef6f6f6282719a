"""The application in front of a server, called as a server calls it; no server runs here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from psflow.tasks.basic_auth import BasicAuth, authorization, login_url, new_auth_string, with_auth

AUTH_STRING = "psflow:s3cret"
KNOWN = [(b"host", b"127.0.0.1:1"), (b"authorization", authorization(AUTH_STRING).encode())]


def answers(kind: str, path: str = "/", headers: Any = (), **options: Any) -> list[dict[str, Any]]:
    """Return what a request is answered with; the application that is protected answers with its scope."""
    sent: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "through", "path": scope["path"]})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {}

    scope = {"type": kind, "path": path, "headers": headers}
    asyncio.run(BasicAuth(application, AUTH_STRING, **options)(scope, receive, send))
    return sent


THROUGH = [{"type": "through", "path": "/"}]


def test_who_knows_the_password_is_let_through() -> None:
    assert answers("http", headers=KNOWN) == answers("websocket", headers=KNOWN) == answers("lifespan") == THROUGH


@pytest.mark.parametrize(
    "given",
    [None, b"", b"Basic", b"Basic \xff", b"Bearer s3cret", b"psflow:s3cret", authorization("psflow:S3cret").encode()],
)
def test_who_does_not_is_asked_for_it_and_gets_nothing(given: bytes | None) -> None:
    headers = [] if given is None else [(b"authorization", given)]
    start, body = answers("http", "/health", headers)
    assert (start["status"], dict(start["headers"])[b"www-authenticate"]) == (401, b'Basic realm="psflow"')
    assert body["body"] == b""
    assert [message["type"] for message in answers("websocket", headers=headers)] == ["websocket.close"]


def test_websockets_are_left_to_an_application_that_asks_for_the_password_itself() -> None:
    assert answers("websocket", checks_websockets=True) == THROUGH
    assert answers("http", checks_websockets=True)[0]["status"] == 401


def test_the_login_page_hands_the_password_to_those_only_who_know_it() -> None:
    token = authorization(AUTH_STRING).removeprefix("Basic ").encode()
    start, page = answers("http", "/psflow-login", KNOWN)
    assert (start["status"], dict(start["headers"])[b"cache-control"]) == (200, b"no-store")
    assert token in page["body"]
    assert b"""localStorage["mlflow.workflowType_v1"] ??= '"machine_learning"'""" in page["body"]
    start, page = answers("http", "/psflow-login")
    assert (start["status"], page["body"]) == (401, b"")


def test_passwords_are_new_and_fit_into_an_address() -> None:
    first, second = new_auth_string(), new_auth_string()
    assert first != second
    assert len(first) > 32
    assert login_url("http://h:1", first) == f"http://{first}@h:1/psflow-login"
    assert (with_auth("http://h:1", None), login_url("http://h:1", None)) == ("http://h:1", "http://h:1")
