"""A small model, checkpoints of it, and a power switch for the file system."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint import files
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.shards import save_shard
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

MODEL = ModelSpec(
    (
        VariableSpec("kernel", (5, 3), "float32", 0),
        VariableSpec("bias", (3,), "float32", 0),
        VariableSpec("scale", (), "float64", 1),
        VariableSpec("empty", (0, 4), "float32", 0),
        VariableSpec("steps", (2,), "int64", None),
    ),
    ({"name": "Momentum", "momentum": 0.9}, {"name": "Adam"}),
)
SLOTS: tuple[tuple[str, ...], ...] = (("velocity",), ("m", "v"))


def slots_of(layout: Any, fill: float = 0.0) -> list[dict[str, Any]]:
    return [
        {
            name: np.full((g.stop - g.start) // np.dtype(g.dtype).itemsize, fill, g.dtype)
            for name in (SLOTS[g.optimizer] if g.optimizer is not None else ())
        }
        for g in layout.groups
    ]


def save(store: CheckpointStore, step: int, num_ps: int = 2, model: ModelSpec = MODEL) -> Manifest:
    """Commit a checkpoint whose every weight is `step` plus a running number, and whose slots are `step`."""
    records = []
    for layout in place(model, num_ps):
        arena = np.zeros(layout.nbytes, np.uint8)
        for piece, view in zip(layout.pieces, piece_views(layout, arena), strict=True):
            row = view.size // max(len(view) if view.shape else 1, 1)
            view[...] = (step + piece.row_start * row + np.arange(view.size)).reshape(view.shape)
        records.append(save_shard(store, step, num_ps, layout, arena, slots_of(layout, step)))
    return store.commit(Manifest.of(step, model, {"position": step}, records))


def expected(step: int, variable: VariableSpec) -> Any:
    return (step + np.arange(int(np.prod(variable.shape)))).reshape(variable.shape).astype(variable.dtype)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/model"
    (tmp_path / "model").mkdir()
    return str(tmp_path / "model")


@pytest.fixture
def store(url: str, clock: Clock) -> CheckpointStore:
    return CheckpointStore(url, clock)


class PowerCutError(BaseException):
    """No code catches it, as no code survives a power cut."""


class Power:
    """After `num_steps` steps that change the disk, a cut: that step is half done, and no later one happens."""

    def __init__(self, num_steps: int) -> None:
        self.left = num_steps

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise PowerCutError

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.spend()
            return function(*args, **kwargs)

        return guarded

    def pwrite(self, descriptor: int, data: memoryview, at: int, pwrite: Callable[..., int] = os.pwrite) -> int:
        try:
            self.spend()
        except PowerCutError:
            pwrite(descriptor, data[: len(data) // 2], at)
            raise
        return pwrite(descriptor, data, at)

    def open(self, *args: Any, **kwargs: Any) -> Any:
        self.spend()
        stream = open(*args, **kwargs)  # noqa: SIM115 - the caller closes what it gets
        write = stream.write

        def torn_write(chunk: bytes) -> None:
            try:
                self.spend()
            except PowerCutError:
                write(chunk[: len(chunk) // 2])
                raise
            write(chunk)

        return _Stream(stream, torn_write)


class _Stream:
    def __init__(self, stream: Any, write: Callable[[bytes], None]) -> None:
        self._stream = stream
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def until_done(action: Callable[[], Any]) -> Iterator[bool]:
    """Run `action` with one more step of power each time; yield after each, True at last when it came through."""
    for num_steps in range(500):
        power = Power(num_steps)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "open", power.open, raising=False)
            patch.setattr(os, "pwrite", power.pwrite)
            for name in ("fsync", "replace", "rename", "remove", "unlink", "rmdir", "mkdir"):
                patch.setattr(os, name, power.guard(getattr(os, name)))
            try:
                action()
            except PowerCutError:
                is_done = False
            else:
                is_done = True
        yield is_done
        if is_done:
            return
    raise AssertionError("never done")


@pytest.fixture
def power_cuts() -> Callable[[Callable[[], Any]], Iterator[bool]]:
    return until_done


@pytest.fixture
def toy() -> Any:
    """What the tests of this folder share, as one namespace."""

    class Toy:
        model = MODEL
        save = staticmethod(save)
        expected = staticmethod(expected)
        slots_of = staticmethod(slots_of)

    return Toy
