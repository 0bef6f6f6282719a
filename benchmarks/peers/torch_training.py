"""Plain torch, or DistributedDataParallel, as a peer: trains a module to the end, and evaluates it on the test part.

``python -m benchmarks.peers.torch_training FACTS RANK`` reads a file of JSON. Several processes share the batches of
each epoch, and rank 0 prints one line of JSON: the metric, and the seconds of the training loop.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from sklearn.metrics import roc_auc_score
from torch.nn import functional as F  # noqa: N812  (its usual name)
from torch.nn.parallel import DistributedDataParallel

Arrays = dict[str, Any]


def main(path: Path, rank: int) -> None:
    """Train for an equal part of the gradients that the facts name."""
    facts = json.loads(path.read_text())
    world_size = facts["world_size"]
    sys.path.insert(0, facts["folder"])
    file, _, name = facts["module"].partition(":")
    torch.set_num_threads(1)
    torch.manual_seed(facts["seed"])
    module = getattr(importlib.import_module(file), name)()
    trained = module
    if world_size > 1:
        dist.init_process_group("gloo", facts["address"], rank=rank, world_size=world_size)
        trained = DistributedDataParallel(module)
    optimizer = getattr(torch.optim, facts["optimizer"])(module.parameters(), facts["learning_rate"])
    loss = F.cross_entropy if facts["metric"] == "accuracy" else F.binary_cross_entropy_with_logits
    train = dict(np.load(facts["train"]))
    started = time.monotonic()
    source = batches(train, facts["batch_size"], facts["seed"], rank, world_size)
    for _, (features, labels) in zip(range(facts["num_gradients"] // world_size), source, strict=False):
        optimizer.zero_grad()
        loss(trained(**features), labels).backward()
        optimizer.step()
    secs = time.monotonic() - started
    if world_size > 1:
        dist.barrier()
        dist.destroy_process_group()  # or the exit of one process may end the threads of gloo in the other
    if rank == 0:
        print(json.dumps({"secs": secs, facts["metric"]: evaluated(module, dict(np.load(facts["test"])))}), flush=True)


def batches(data: Arrays, size: int, seed: int, rank: int, world_size: int) -> Iterator[tuple[Arrays, torch.Tensor]]:
    """Yield each `world_size`-th batch of each epoch, in a new order for each."""
    rng = np.random.default_rng(seed)
    labels = data.pop("labels")
    while True:
        order = rng.permutation(len(labels))
        for start in range(rank * size, len(order) - size + 1, world_size * size):
            rows = order[start : start + size]
            yield (
                {name: torch.from_numpy(column[rows]) for name, column in data.items()},
                torch.from_numpy(labels[rows]),
            )


def evaluated(module: torch.nn.Module, data: Arrays) -> float:
    """Return the accuracy of classes, or the AUC of one logit."""
    labels = data.pop("labels")
    module.eval()
    with torch.no_grad():
        logits = module(**{name: torch.from_numpy(column) for name, column in data.items()}).numpy()
    return float((logits.argmax(axis=1) == labels).mean() if logits.ndim == 2 else roc_auc_score(labels, logits))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
