from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint import manifest as module
from psflow.ps_runtime.checkpoint.entries import ShardRecord, TensorEntry
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import CheckpointError


@pytest.fixture
def manifest(toy: Any) -> Manifest:
    saved: Manifest = toy.save(CheckpointStore("memory://manifest-test"), next(STEPS))
    return saved


STEPS = iter(range(1000))


def forge(manifest: Manifest, **changes: Any) -> str:
    """Return the text of the manifest with some of its body replaced, under a right checksum."""
    return module._sealed(json.loads(manifest.to_json())["body"] | changes)


def test_text_and_back(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_records_travel_as_plain_data(manifest: Manifest) -> None:
    record = ShardRecord(manifest.shards[0], tuple(e for e in manifest.tensors if e.shard == 0))
    assert ShardRecord.from_facts(json.loads(json.dumps(record.to_facts()))) == record


def test_any_flipped_byte_is_found(manifest: Manifest) -> None:
    intact = manifest.to_json().encode()
    for place in range(len(intact)):
        for bit in (0, 5):  # 5: the case of a letter
            torn = intact[:place] + bytes([intact[place] ^ 1 << bit]) + intact[place + 1 :]
            with pytest.raises(CheckpointError, match=r"its bytes have changed|not a manifest, or torn"):
                Manifest.from_json(torn.decode("latin-1"))


def test_any_cut_is_found(manifest: Manifest) -> None:
    intact = manifest.to_json()
    for length in range(0, len(intact), 7):
        with pytest.raises(CheckpointError, match=r"its bytes have changed|not a manifest, or torn"):
            Manifest.from_json(intact[:length])


@pytest.mark.parametrize(
    "name", ["../../shard_00000_of_00002.safetensors", "/etc/passwd", "shard_00001_of_00002.safetensors"]
)
def test_a_path_never_leaves_its_directory(manifest: Manifest, name: str) -> None:
    shards = [s.to_facts() for s in manifest.shards]
    shards[0]["name"] = name
    with pytest.raises(CheckpointError, match=rf"name '{name}', expected 'shard_00000_of_00002.safetensors'"):
        Manifest.from_json(forge(manifest, shards=shards))


def entry(manifest: Manifest, **changes: Any) -> dict[str, Any]:
    first, *others = manifest.tensors
    return {"tensors": [replace(first, **changes).to_facts(), *(e.to_facts() for e in others)]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 10}, "format 10, expected 11; read it with the psflow that wrote it"),
        ({"format": 12}, "format 12, expected 11; read it with the psflow that wrote it"),
        ({"extra": 1}, "the manifest: expected format, step"),
        ({"step": -1}, "step: expected a whole number >= 0, got -1"),
        ({"step": True}, "step: expected a whole number >= 0, got True"),
        ({"job": []}, "job: expected an object"),
        ({"model": {}}, "not a manifest: KeyError"),
        ({"shards": []}, "claims shard . of 0"),
        ({"shards": 3}, "not a manifest: TypeError"),
        ({"tensors": [["kernel"]]}, "tensor: expected a list of 7"),
        ({"tensors": []}, r"variable 'bias' has rows \[\], expected each of 3 once"),
    ],
)
def test_a_forged_manifest_is_refused(manifest: Manifest, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        Manifest.from_json(forge(manifest, **changes), "manifest.json")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"variable": "kernal"}, "no variable 'kernal'; did you mean 'kernel'"),
        ({"row_start": 9}, r"rows \[9, 5\) of 5"),
        ({"row_stop": 9}, r"rows \[0, 9\) of 5"),
        ({"shape": (5, 1000)}, r"float32\[5, 1000\], expected float32\[5, 3\]"),
        ({"dtype": "float64"}, r"float64\[5, 3\], expected float32\[5, 3\]"),
        ({"shard": 7}, "tensor 'kernel@0' claims shard 7 of 2"),
        ({"slot": "velocity"}, r"variable 'kernel' has rows \[\]"),
    ],
)
def test_a_forged_entry_is_refused(manifest: Manifest, changes: dict[str, Any], words: str) -> None:
    assert manifest.tensors[0] == TensorEntry("kernel", None, 0, 5, "float32", (5, 3), 0)
    with pytest.raises(CheckpointError, match=words):
        Manifest.from_json(forge(manifest, **entry(manifest, **changes)))


def changed(manifest: Manifest, **changes: Any) -> Any:
    """Return the model of a manifest, its first variable changed."""
    model = json.loads(manifest.model.to_json())
    model["variables"][0] |= changes
    return model


def test_a_model_that_cannot_be_is_refused_before_anything_is_allocated(manifest: Manifest) -> None:
    model = json.loads(manifest.model.to_json())
    model["variables"][0]["dtype"] = "object"
    with pytest.raises(CheckpointError, match=r"VariableSpec\(name='kernel'.* is invalid"):
        Manifest.from_json(forge(manifest, model=model))
    for change in ({"shape": [-5, 3]}, {"optimizer": 9}, {"num_slices": 0}, {"num_slices": 6}, {"num_slices": 1.5}):
        with pytest.raises(CheckpointError, match=r"VariableSpec\(name='kernel'.* is invalid"):
            Manifest.from_json(forge(manifest, model=changed(manifest, **change)))
    model["variables"][0] |= {"dtype": "float32", "shape": [10**12, 3]}
    changes = entry(manifest, row_stop=10**12, shape=(10**12, 3))
    with pytest.raises(CheckpointError, match=r"has \d+ bytes, its tensors claim 12000000000"):
        Manifest.from_json(forge(manifest, model=model, **changes))


def test_rows_twice_or_with_a_gap_are_refused(manifest: Manifest) -> None:
    first, *others = manifest.tensors
    for parts in ([(0, 3), (2, 5)], [(0, 2), (3, 5)], [(0, 5), (0, 5)], [(1, 5)]):
        split = [replace(first, row_start=a, row_stop=b, shape=(b - a, 3)) for a, b in parts]
        with pytest.raises(CheckpointError, match=r"variable 'kernel' has rows .*, expected each of 5 once"):
            Manifest.from_json(forge(manifest, tensors=[e.to_facts() for e in (*split, *others)]))


def test_facts_that_json_cannot_hold_are_refused_when_written(manifest: Manifest) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(manifest, job={"x": float("nan")}).to_json()
