"""``model_dir/waiting_notes.json``: tags and files that MLflow has not taken, for a later attempt to write."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.typed_json import as_kind, from_json
from psflow.ps_runtime.errors import CheckpointError

__all__ = ["WAITING_NOTES", "WaitingNotes", "read_waiting_notes", "write_waiting_notes"]

WAITING_NOTES = "waiting_notes.json"


@dataclass(frozen=True, slots=True)
class WaitingNotes:
    """Notes of the MLflow run `run_id`: `tags` by name, and the content of `files` by path."""

    run_id: str
    tags: Mapping[str, str]
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class _Facts:
    run_id: str
    tags: Mapping[str, str]
    files_base64: Mapping[str, str]


def write_waiting_notes(model_dir: str, notes: WaitingNotes) -> None:
    """Write `notes`, and nothing of what the file held before."""
    files = {name: b64encode(content).decode() for name, content in notes.files.items()}
    facts = {"run_id": notes.run_id, "tags": dict(notes.tags), "files_base64": files}
    FileStore(model_dir).put(WAITING_NOTES, json.dumps(facts).encode())


def read_waiting_notes(model_dir: str) -> WaitingNotes | None:
    """Return what the file holds; None if there is none.

    Raises
    ------
    CheckpointError
        If it is damaged.
    """
    files = FileStore(model_dir)
    if files.size(WAITING_NOTES) is None:
        return None
    try:
        facts = as_kind(_Facts, from_json(files.read(WAITING_NOTES)), "notes")
        contents = {name: b64decode(text, validate=True) for name, text in facts.files_base64.items()}
    except ValueError as error:
        remedy = "remove the file: the MLflow run lacks these tags and files then"
        raise CheckpointError(files.path(WAITING_NOTES), f"damaged: {error}; {remedy}") from error
    return WaitingNotes(facts.run_id, facts.tags, contents)
