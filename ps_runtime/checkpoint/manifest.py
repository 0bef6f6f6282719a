"""The manifest, which makes a directory of shard files a checkpoint.

It is one JSON object ``{"body": ..., "checksum": ...}`` in a canonical form, so that any change of a byte is detected.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.checkpoint.entries import (
    ShardFile,
    ShardRecord,
    TableEntry,
    TensorEntry,
    fields_of,
    table_faults,
    table_spec_faults,
    whole,
)
from psflow.ps_runtime.checkpoint.tensor_file import DTYPES
from psflow.ps_runtime.errors import CheckpointError, did_you_mean
from psflow.ps_runtime.specs.variables import ModelSpec

FORMAT_VERSION = 11
MAX_MANIFEST_BYTES = 256 << 20


@dataclass(frozen=True)
class Manifest:
    """All facts about a checkpoint without its tensors."""

    step: int
    model: ModelSpec
    job: Mapping[str, Any]
    shards: tuple[ShardFile, ...]
    tensors: tuple[TensorEntry, ...]
    tables: tuple[TableEntry, ...] = ()
    saved_at: float = 0.0
    first_saved_at: float = 0.0

    @classmethod
    def of(cls, step: int, model: ModelSpec, job: Mapping[str, Any], records: Iterable[ShardRecord]) -> Manifest:
        """Return the manifest of the shards that `records` describe, in any order."""
        ordered = sorted(records, key=lambda record: record.file.index)
        tensors = tuple(entry for record in ordered for entry in record.tensors)
        tables = tuple(entry for record in ordered for entry in record.tables)
        return cls(step, model, job, tuple(record.file for record in ordered), tensors, tables)

    def to_json(self) -> str:
        """Return the manifest as text.

        Raises TypeError or ValueError if `job` holds a value that JSON does not support.
        """
        body = {
            "format": FORMAT_VERSION,
            "step": self.step,
            "saved_at": self.saved_at,
            "first_saved_at": self.first_saved_at,
            "model": json.loads(self.model.to_json()),
            "job": dict(self.job),
            "shards": [shard.to_facts() for shard in self.shards],
            "tensors": [entry.to_facts() for entry in self.tensors],
            "tables": [entry.to_facts() for entry in self.tables],
        }
        return _sealed(body)

    @classmethod
    def from_json(cls, text: str, path: str = "manifest.json") -> Manifest:
        """Decode and check the result of `to_json`.

        Raises CheckpointError if a byte has changed, the format has another version, or the parts contradict each
        other.
        """
        body = _unsealed(text, path)
        if body.get("format") != FORMAT_VERSION:
            raise CheckpointError(
                path, f"format {body.get('format')!r}, expected {FORMAT_VERSION}; read it with the psflow that wrote it"
            )
        try:
            manifest = cls._from_body(body)
            faults = manifest.faults()
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise CheckpointError(path, f"not a manifest: {type(error).__name__}: {error}") from error
        if faults:
            raise CheckpointError(path, "; ".join(faults))
        return manifest

    @classmethod
    def _from_body(cls, body: Mapping[str, Any]) -> Manifest:
        known = ("format", "step", "saved_at", "first_saved_at", "model", "job", "shards", "tensors", "tables")
        fields_of(body, known, "the manifest")
        if not isinstance(body["job"], dict):
            raise ValueError(f"job: expected an object, got {body['job']!r}")
        return cls(
            whole(body["step"], "step"),
            ModelSpec.from_json(json.dumps(body["model"])),
            body["job"],
            tuple(ShardFile.from_facts(facts) for facts in body["shards"]),
            tuple(TensorEntry.from_facts(facts) for facts in body["tensors"]),
            tuple(TableEntry.from_facts(facts) for facts in body["tables"]),
            float(body["saved_at"]),
            float(body["first_saved_at"]),
        )

    def faults(self) -> list[str]:
        """Return sentences on contradictions; none if the manifest is consistent."""
        faults = [*_variable_faults(self.model), *table_spec_faults(self.model)]
        for index, shard in enumerate(self.shards):
            if (shard.index, shard.num_shards) != (index, len(self.shards)):
                faults.append(f"shard file {shard.name!r} stands at place {index} of {len(self.shards)}")
        return (
            faults
            or self._tensor_faults()
            or _size_faults(self.shards, [*self.tensors, *self.tables])
            or [*_row_faults(self.model, self.tensors), *table_faults(self.model, len(self.shards), self.tables)]
        )

    def _tensor_faults(self) -> list[str]:
        variables = {variable.name: variable for variable in self.model.variables}
        faults = []
        for entry in self.tensors:
            if entry.variable not in variables:
                faults.append(f"no variable {entry.variable!r}{did_you_mean(entry.variable, variables)}")
            else:
                faults += entry.faults(variables[entry.variable])
        return faults + [
            f"{entry.key}: dtype {entry.dtype!r} is invalid" for entry in self.tables if entry.dtype not in DTYPES
        ]


def _sealed(body: Mapping[str, Any]) -> str:
    text = _canonical(body)
    return _canonical({"body": body, "checksum": f"crc32:{zlib.crc32(text.encode()):08x}"}) + "\n"


def _unsealed(text: str, path: str) -> dict[str, Any]:
    try:
        sealed = json.loads(text)
        body = sealed["body"]
        is_intact = isinstance(body, dict) and _sealed(body) == text
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(path, f"not a manifest, or torn: {error}") from error
    if not is_intact:
        raise CheckpointError(path, "its bytes have changed: the checksum does not agree")
    return dict(body)


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _variable_faults(model: ModelSpec) -> list[str]:
    faults = []
    for variable in model.variables:
        is_shape = all(type(n) is int and n >= 0 for n in variable.shape)
        is_trained = variable.optimizer is None or variable.optimizer in range(len(model.optimizers))
        slices = variable.num_slices
        is_sliced = slices is None or (is_shape and type(slices) is int and 1 <= slices <= max(1, variable.num_rows))
        is_known = isinstance(variable.name, str) and variable.dtype in DTYPES
        if not (is_known and is_shape and is_trained and is_sliced):
            faults.append(f"{variable} is invalid")
    return faults


def _size_faults(shards: tuple[ShardFile, ...], tensors: Iterable[TensorEntry | TableEntry]) -> list[str]:
    """Compare the claimed bytes of tensors with those of files, before memory is allocated."""
    claimed = [0] * len(shards)
    faults = []
    for entry in tensors:
        if entry.shard < len(shards):
            claimed[entry.shard] += entry.nbytes
        else:
            faults.append(f"tensor {entry.key!r} claims shard {entry.shard} of {len(shards)}")
    for shard, nbytes in zip(shards, claimed, strict=True):
        if nbytes > shard.nbytes:
            faults.append(f"{shard.name} has {shard.nbytes} bytes, its tensors claim {nbytes}")
    return faults


def _row_faults(model: ModelSpec, tensors: Iterable[TensorEntry]) -> list[str]:
    """Check that the rows of each variable, and of each slot, are complete and unique."""
    rows: dict[tuple[str, str | None], list[tuple[int, int]]] = {(v.name, None): [] for v in model.variables}
    for entry in tensors:
        rows.setdefault((entry.variable, entry.slot), []).append((entry.row_start, entry.row_stop))
    num_rows = {v.name: v.num_rows for v in model.variables}
    return [
        f"{_name(variable, slot)} has rows {sorted(parts)}, expected each of {num_rows[variable]} once"
        for (variable, slot), parts in rows.items()
        if not _tile(sorted(parts), num_rows[variable])
    ]


def _tile(parts: list[tuple[int, int]], num_rows: int) -> bool:
    ends = [0, *(stop for _, stop in parts)]
    return bool(parts) and [start for start, _ in parts] == ends[:-1] and ends[-1] == num_rows


def _name(variable: str, slot: str | None) -> str:
    return f"variable {variable!r}" if slot is None else f"slot {slot!r} of variable {variable!r}"
