"""State dictionaries of torch modules: read from files, and made from the values of a model."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.torch_modules.sparse import is_table

STATE_FILES = (".pt", ".pth", ".bin", ".safetensors")
"""Endings of files that hold a state dictionary."""
WRAPPED = ("state_dict", "model_state_dict")
"""Keys below which checkpoints of training loops keep the state dictionary."""


def is_state_file(path: Any) -> bool:
    """Return whether `path` names a file with a state dictionary, rather than checkpoints of psflow."""
    return isinstance(path, str | os.PathLike) and os.fspath(path).endswith(STATE_FILES)


def read_state(path: str) -> dict[str, torch.Tensor]:
    """Return the state dictionary in a file. No code in the file is run.

    Raises UsageError if it cannot be read, or holds something else.
    """
    try:
        if path.endswith(".safetensors"):
            from safetensors.torch import load_file

            found: Any = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises anything for a file of another kind
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UsageError((f"warm_start_from: cannot read a state_dict from {path}: {reason}",)) from error
    found = next((found[key] for key in WRAPPED if isinstance(found, Mapping) and key in found), found)
    extra = "_extra_state"  # what get_extra_state of a part returns
    if isinstance(found, Mapping):
        found = {name: value for name, value in found.items() if not str(name).endswith(extra)}
    if not isinstance(found, Mapping) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise UsageError(
            (
                f"warm_start_from: {path} holds a {type(found).__name__}, expected a state_dict: save one with "
                "torch.save(module.state_dict(), path)",
            )
        )
    return dict(found)


@dataclass(frozen=True)
class StateFile:
    """A file with a state_dict, and a regular expression of the values that are taken from it; None: all of them."""

    path: str
    pattern: str | None = None

    def load(self, module: torch.nn.Module) -> None:
        """Give a new module the values of the file.

        Raises UsageError if the file cannot be read, or has other names or shapes; with all faults in one message. Also
        if a value belongs to a sparse embedding, whose table draws its rows one by one.
        """
        state = read_state(self.path)
        mine = {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}
        if self.pattern is not None:
            mine = {name: value for name, value in mine.items() if re.search(self.pattern, name)}
            state = {name: value for name, value in state.items() if name in mine}
            if not mine:
                raise UsageError((f"warm_start_from: {self.pattern!r} matches no name of the module",))
        tables = [f"{prefix}.weight" for prefix, layer in module.named_modules() if is_table(layer)]
        faults = [
            f"{name!r} is a sparse embedding, which takes no values from a state_dict: warm-start it from a model_dir"
            for name in tables
            if name in mine
        ]
        faults += [f"{name!r} is missing{did_you_mean(name, list(state))}" for name in mine if name not in state]
        faults += [
            f"{name!r} is not in the module{did_you_mean(name, list(mine))}" for name in state if name not in mine
        ]
        faults += [
            f"{name!r} is {list(state[name].shape)}, expected {list(value.shape)}"
            for name, value in mine.items()
            if name in state and state[name].shape != value.shape
        ]
        if faults:
            raise UsageError(tuple(f"warm_start_from: {self.path}: {fault}" for fault in faults))
        module.load_state_dict(state, strict=False)


def fill(module: torch.nn.Module, values: ModelValues, dot: str) -> None:
    """Give a new module the values of a model, whose names begin with `dot`."""
    with torch.no_grad():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if (value := values.variables.get(dot + name)) is not None:
                tensor.copy_(torch.from_numpy(np.array(value)))
            elif (table := values.tables.get(dot + name)) is not None:
                tensor.copy_(torch.from_numpy(values.rows(table.spec, np.arange(table.spec.num_rows))))
        for layer in module.modules():
            if is_table(layer) and layer.padding_idx is not None:
                layer.weight[layer.padding_idx] = 0
