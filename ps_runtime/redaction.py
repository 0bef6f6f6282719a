"""Removes credentials from all texts for users: logs, errors, answers, and records of MLflow and Prefect.

The only place that knows the forms of credentials. It removes too much rather than too little.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

HIDDEN = "***"

SCHEME = r"[A-Za-z][A-Za-z0-9+.:-]*://"
NAMES = (
    r"x-amz-[a-z-]+|x-goog-[a-z-]+|awsaccesskeyid|sig|signature|sas|credentials?|passw(?:or)?d|pwd|pass|secret|client_secret"
    r"|(?:[a-z]+[_-])?token|(?:api|account|access|private|shared|secret)[_-]?(?:access[_-]?)?key(?:[_-]?id)?|auth[_-]string"
)
"""Of parameters in a query, keys in a connection string and in a configuration; case does not matter."""
CLOSERS = r"['\")\]>},;:.]*"
"""Characters that may follow an address in a sentence."""

_IS_URL = re.compile(SCHEME)
_KEY = rf"(?!(?:max|min|num|n)[_-])(?:[a-z0-9]+[_-])*?(?:{NAMES})"
_QUOTED = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
_IS_SECRET_KEY = re.compile(_KEY, re.IGNORECASE)
_NAMED = re.compile(rf"(?<![\w-])(?P<name>{_KEY})(?P<mark>=|['\"]\s*[:=]\s*)(?:{_QUOTED}|[^\s&;,]+)", re.IGNORECASE)


# User and password, up to the last @. A password may hold any character, also those that should have been escaped:
# after "user:" none of them ends it.
_USER_IN_TEXT = re.compile(r"(?<=://)(?:(?:(?!://)[^\s/?#])*|[^\s/?#@:]*:(?:(?!://)\S)*)@")
_USER_OF_URL = re.compile(r"(?<=://)(?:[^/?#]*|[^/?#@:]*:.*)@", re.DOTALL)
_PASSWORD = re.compile(r"://[^/?#@]*:.*@|https?://[^/?#@]+@", re.DOTALL)
_QUERY_IN_TEXT = re.compile(rf"(?P<place>/[^\s?]*)\?(?P<query>\S*?)(?={CLOSERS}(?:\s|$))")
_QUERY_OF_URL = re.compile(r"(?P<place>[^?]*)\?(?P<query>.*)", re.DOTALL)
# Of a page of MLflow, which stands behind the #: a browser keeps that for itself, no storage reads credentials there
_PAGE = re.compile(r"/#/[\w/.~%-]*$")
_VIEW = re.compile(r"[\w.-]+=[\w.+%-]*(?:&[\w.-]+=[\w.+%-]*)*")


def without_secrets(text: str) -> str:
    """Return `text` without user, password and query in its URLs, and in paths of URLs.

    Of the query of a page, behind ``/#/``, only credentials are removed: it says what the page shows.

    Examples
    --------
    >>> without_secrets("GET http://bob:secret@host/a?token=1 failed: host said no")
    'GET http://host/a failed: host said no'
    >>> without_secrets("s3://key:se'cr/et@bucket/a.csv")
    's3://bucket/a.csv'
    >>> without_secrets("BlobEndpoint=x;sig=secret")
    'BlobEndpoint=x;sig=***'
    >>> without_secrets("http://bob:secret@host/#/experiments/3?workflowType=machine_learning&token=1")
    'http://host/#/experiments/3?workflowType=machine_learning'
    """
    text = _QUERY_IN_TEXT.sub(_without_query, _USER_IN_TEXT.sub("", text))
    return _NAMED.sub(rf"\g<name>\g<mark>{HIDDEN}", text)


def _without_query(url: re.Match[str]) -> str:
    place, query = url["place"], url["query"]
    if not (_PAGE.search(place) and _VIEW.fullmatch(query)):
        return place
    pairs = (pair for pair in query.split("&") if not _IS_SECRET_KEY.fullmatch(pair.partition("=")[0]))
    return "?".join(filter(None, (place, "&".join(pairs))))


def public(value: Any, key: str = "") -> Any:
    """Return plain values without their credentials, for every reader.

    Examples
    --------
    >>> public({"input": {"path": "https://key:s3cret@host/t.csv?signature=s3cret", "epochs": 2}, "api_key": "s3cret"})
    {'input': {'path': 'https://host/t.csv', 'epochs': 2}, 'api_key': '***'}
    """
    if isinstance(value, Mapping):
        return {name: public(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [public(inner, key) for inner in value]
    if _is_secret(key, value):
        return HIDDEN
    if not isinstance(value, str):
        return value
    if _IS_URL.match(value):  # it ends where the value ends, whatever characters are in it
        value = _QUERY_OF_URL.sub(_without_query, _USER_OF_URL.sub("", value, count=1))
    return without_secrets(value)


def public_sentence(sentence: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a method that returns the text of `sentence` without credentials."""

    @functools.wraps(sentence)
    def public_sentence_of(error: Any) -> str:
        return without_secrets(sentence(error))

    return public_sentence_of


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return `path` for error messages: absolute if local, without credentials and query if a URL.

    Examples
    --------
    >>> shown_path("s3://key:secret@bucket/a.csv?signature=1")
    's3://bucket/a.csv'
    """
    text = os.fspath(path).removeprefix("file://")
    if "://" not in text:
        return os.path.abspath(os.path.expanduser(text))
    return str(public(text))


def shown_file(path: str) -> str:
    """Return the name of a user's file in texts: relative to the working directory, if it is below."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def secret_keys(values: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys of plain values that hold a password or a token; a query alone does not count.

    Examples
    --------
    >>> secret_keys({"input": {"path": "s3://key:s3cret@bucket/t.csv", "other": "sftp://bob@host/t.csv?v=3"}})
    ['input.path']
    """
    return list(dict.fromkeys(_secret_keys("", values)))


def _secret_keys(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _secret_keys(f"{key}.{name}".lstrip("."), inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _secret_keys(key, inner)
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        if _is_secret(key.rpartition(".")[2], value) or _PASSWORD.search(text) or _NAMED.search(text):
            yield key


def _is_secret(name: str, value: Any) -> bool:
    """Return whether a value is a credential by its name; a number named token is a vocabulary index."""
    if value is None or isinstance(value, bool) or _IS_SECRET_KEY.fullmatch(name) is None:
        return False
    return isinstance(value, str) or not name.lower().endswith("token")


class _PublicRecord(logging.LogRecord):
    """A log record, with its traceback, without credentials."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.exc_info and self.exc_info[0] is not None:
            self.exc_text = without_secrets("".join(traceback.format_exception(*self.exc_info)).rstrip())

    def getMessage(self) -> str:  # noqa: N802 - the name that logging gives it
        return without_secrets(super().getMessage())


def redact_logs() -> None:
    """Remove credentials from everything that this process logs from now on. Idempotent."""
    logging.setLogRecordFactory(_PublicRecord)
