"""Tensors and data sets of torch, which count as such only where the program has imported torch."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_tensor(value: object) -> bool:
    """Whether `value` is a tensor of torch."""
    return isinstance(value, _class_of("torch", "Tensor"))


def tensor_as_array(what: str, tensor: Any, faults: list[str]) -> NDArray[Any] | None:
    """Return a tensor as an array, without a copy, or None with the reason appended to `faults`."""
    try:
        return np.asarray(tensor.numpy())
    except (TypeError, RuntimeError) as error:
        if tensor.requires_grad:
            fault = "a tensor that requires a gradient, which does not reach what has computed it: pass its .detach()"
        elif tensor.device.type != "cpu":
            fault = f"a tensor on the device {tensor.device}: pass its .cpu(), and move it to a device in forward"
        elif tensor.layout != _class_of("torch", "strided"):
            fault = f"a tensor with layout {tensor.layout}: pass its .to_dense()"
        else:
            fault = f"a {tensor.dtype} tensor, which numpy cannot share ({error}): convert it first, as with .float()"
        faults.append(f"{what} is {fault}")
        return None


def is_pair(batch: object) -> bool:
    """Whether `batch` is a list of two with tensors, such as [features, labels] of a collate function."""
    if not isinstance(batch, list) or len(batch) != 2:
        return False
    return any(is_tensor(value) for part in batch for value in (part.values() if isinstance(part, Mapping) else [part]))


def fault_of_torch_data(data: Any) -> str:
    """Return what to return in place of a data set or a loader of torch; "" if `data` is none."""
    in_generator = "yield its batches (features, labels) from a generator instead, which one reader distributes"
    if isinstance(data, _class_of("torch.utils.data", "IterableDataset")):
        return f"an IterableDataset of torch, of which psflow cannot tell batches from examples: {in_generator}"
    if isinstance(data, _class_of("torch.utils.data", "Dataset")):
        return "a Dataset of torch without batches: return psflow.torch.batches(dataset, batch_size)"
    if (fault := _fault_of_loop(data)) or not isinstance(data, _class_of("torch.utils.data", "DataLoader")):
        return fault
    loader = "a DataLoader of torch, which shuffles and splits by itself"
    if isinstance(data.dataset, _class_of("torch.utils.data", "IterableDataset")):
        return f"{loader}: {in_generator}"
    size = "batch_size" if data.batch_size is None else data.batch_size
    return f"{loader}: {_batches(size)}"


def _fault_of_loop(data: Any) -> str:
    """Return what to return in place of a loop over the DataLoader of a map-style data set; "" for anything else."""
    if inspect.isgenerator(data) and data.gi_frame is not None:
        data = data.gi_frame.f_locals.get(".0")  # what a generator expression iterates over
    if not isinstance(data, _class_of("torch.utils.data.dataloader", "_BaseDataLoaderIter")):
        return ""
    if isinstance(data._dataset, _class_of("torch.utils.data", "IterableDataset")):
        return ""  # a stream in any form
    size = getattr(data._index_sampler, "batch_size", "batch_size")
    return f"a loop over a DataLoader of torch, which ps-0 alone would read, with torch in its memory: {_batches(size)}"


def _batches(size: Any) -> str:
    return f"return psflow.torch.batches(dataset, {size}) with its data set, and shuffle_seed=1 to shuffle"


def _class_of(module: str, name: str) -> Any:
    """Return a name of a module of torch; () where nobody has imported it, so that nothing is an instance."""
    return getattr(sys.modules.get(module), name, ())
