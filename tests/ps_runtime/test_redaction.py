"""What people read has no credentials in it, and is not changed otherwise."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest

from psflow.ps_runtime.errors import CheckpointError, PsflowError, RoleFailedError
from psflow.ps_runtime.redaction import public, redact_logs, secret_keys, shown_path, without_secrets

PASSWORDS = ("s3cret", "s3'cr\"et", "s3/cr/et", "s3@cr@et", "s3%2Fcret", "s3?cr#et", "12/34", "s3:cret")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no a://u:p@h/x, b://:p@q@h:1/y?k=v here", "no a://h/x, b://h:1/y here"),
        ("(with url: /api?token=p)", "(with url: /api)"),
        ("['s3://u:p@b?k=p', 1]", "['s3://b', 1]"),
        ("GET 'https://h/a?sig=p'q\"p&x=1', twice", "GET 'https://h/a', twice"),
        ("https://h/a?X-Amz-Credential=p/q&X-Amz-Signature=p.", "https://h/a."),
        ("https://p@h/x and simplecache::s3://k:p@b/a.csv", "https://h/x and simplecache::s3://b/a.csv"),
        ("BlobEndpoint=h;sig=p;AccountKey=p/q==;x=1", "BlobEndpoint=h;sig=***;AccountKey=***;x=1"),
        ("{'password': 'p q', 'a': 1}", "{'password': ***, 'a': 1}"),
        ("sqlite:////a@b/mlflow.db: WHERE x = ?", "sqlite:////a@b/mlflow.db: WHERE x = ?"),
        ("http://h:80/#/experiments/1/runs/2", "http://h:80/#/experiments/1/runs/2"),
        ("at http://h:80/#/runs/2?view=a_b&x=W10%3D.", "at http://h:80/#/runs/2?view=a_b&x=W10%3D."),
        ("(http://u:p@h/#/runs/2?view=a&token=p)", "(http://h/#/runs/2?view=a)"),
        ("http://h/#/a?view='p'q, http://h/#/a?p, http://h/#/a?sig=p", "http://h/#/a, http://h/#/a, http://h/#/a"),
        ("http://h/a?k=p#/runs/2?view=a", "http://h/a"),
        ("['http://h/#/a','s3://b/c?k=p']", "['http://h/#/a','s3://b/c']"),
        ("models:/m@best of tcp://h:1 at https://h/x@main", "models:/m@best of tcp://h:1 at https://h/x@main"),
        ("num_tokens=5 tickets=3 what is it?", "num_tokens=5 tickets=3 what is it?"),
        (
            "{'db_password': 'p', 'n': 1} AWS_SECRET_ACCESS_KEY=p",
            "{'db_password': ***, 'n': 1} AWS_SECRET_ACCESS_KEY=***",
        ),
        (r"password='a\'b c' d", "password=*** d"),
    ],
)
def test_texts_are_shown_without_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_password_may_hold_any_character(password: str) -> None:
    url = f"s3://key:{password}@bucket/a.csv"
    assert without_secrets(f"cannot read '{url}': no") == "cannot read 's3://bucket/a.csv': no"
    assert public(url) == public(url.replace(password, f"{password} {password}")) == "s3://bucket/a.csv"


def test_values_of_a_configuration_are_taken_whole_and_by_their_names() -> None:
    values: dict[str, Any] = {
        "path": "https://host/a b.csv?sig=p q",
        "params": {
            "hf_token": "p",
            "num_tokens": 3,
            "max_token": 4,
            "pad_token": 5,
            "aws_secret_access_key": "p",
            "password": 17,
        },
        "paths": ["s3://k:p@b/1", "/a/1"],
        "pages": ["http://u:p@h/#/a?view=b", "http://h/#/a?view=b&sig=p", "http://h/#/a?view=b&sig=p q"],
        "token": None,
    }
    assert public(values) == {
        "path": "https://host/a b.csv",
        "params": {
            "hf_token": "***",
            "num_tokens": 3,
            "max_token": 4,
            "pad_token": 5,
            "aws_secret_access_key": "***",
            "password": "***",
        },
        "paths": ["s3://b/1", "/a/1"],
        "pages": ["http://h/#/a?view=b", "http://h/#/a?view=b", "http://h/#/a"],
        "token": None,
    }


def test_a_query_alone_is_no_secret_and_a_password_or_a_signature_is() -> None:
    assert secret_keys({"a": {"path": "https://h/t.csv?v=3"}, "b": ["sftp://bob@h/t", "tcp://h:1", 3, None]}) == []
    found = secret_keys({"a": {"path": "https://h/t.csv?sig=p"}, "b": ["x", "sftp://bob:p@h/t"], "c": {"api_key": "p"}})
    assert found == ["a.path", "b", "c.api_key"]


@pytest.mark.parametrize(
    "error",
    [
        RoleFailedError("chief-0", "OSError('403 for https://key:s3cret@host/a?sig=s3cret')"),
        CheckpointError("s3://key:s3'cret/s3cret@bucket/m", "torn"),
    ],
)
def test_no_error_tells_one(error: PsflowError) -> None:
    assert "s3" not in str(error).replace("s3://", "")


def test_no_record_of_a_log_tells_one_nor_does_its_traceback() -> None:
    stream = io.StringIO()
    logger = logging.Logger("redaction")
    logger.addHandler(logging.StreamHandler(stream))
    factory = logging.getLogRecordFactory()
    redact_logs()
    try:
        try:
            raise OSError("403 for s3://key:s3cret@bucket/a")
        except OSError:
            logger.exception("reading %s", "https://host/a?token=s3cret")
    finally:
        logging.setLogRecordFactory(factory)
    told = stream.getvalue()
    assert "s3cret" not in told
    assert told.splitlines()[0] == "reading https://host/a"
    assert told.splitlines()[-1] == "OSError: 403 for s3://bucket/a"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/a/../b.csv", "/b.csv"),
        ("file:///a/b.csv", "/a/b.csv"),
        ("s3://key:secret@bucket/a.csv", "s3://bucket/a.csv"),
        ("https://host/a.csv?X-Signature=a:b&c=::d", "https://host/a.csv"),
        ("simplecache::s3://key:secret@bucket/a.csv", "simplecache::s3://bucket/a.csv"),
    ],
)
def test_shown_paths_are_absolute_and_without_secrets(path: str, shown: str) -> None:
    assert shown_path(path) == shown
