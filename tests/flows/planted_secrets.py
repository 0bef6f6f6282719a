"""Credentials of ten kinds for a configuration, and a search for them in all files of a command."""

from __future__ import annotations

import json
from pathlib import Path

MARK = "pl4nted"
SECRETS = {
    "plain": f"s3://key:{MARK}@bucket/t.csv",
    "quotes": f"https://bob:{MARK}'{MARK}\"{MARK}@host/t.csv",
    "slashes": f"https://bob:{MARK}/{MARK}+{MARK}@host/t.csv",
    "escaped": f"https://bob:%40{MARK}@host/t.csv",
    "no_user": f"https://{MARK}@host/t.csv",
    "chained": f"simplecache::s3://key:{MARK}@bucket/t.csv",
    "sas": f"https://host/t.csv?sp=r&sig={MARK}%3D",
    "presigned": f"https://host/t.csv?X-Amz-Credential={MARK}&X-Amz-Signature={MARK}&X-Amz-Security-Token={MARK}",
    "connection": f"AccountName=a;AccountKey={MARK}==;EndpointSuffix=host",
    "api_key": MARK,
}
"""The last one is known by its name only."""

YAML = f"{{{', '.join(f'{key}: {json.dumps(value)}' for key, value in SECRETS.items())}}}"
"""A mapping of all of them."""


def holders(folder: Path, mark: str = MARK) -> dict[str, int]:
    """Return the files below a folder that hold one of them, by name, with the rights of their group and of others."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = [path for path in files if mark.encode() in path.read_bytes()]
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o077 for path in found}
