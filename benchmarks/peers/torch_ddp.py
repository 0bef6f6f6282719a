"""DistributedDataParallel as a peer: one process of a job, as an ordinary program.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set. It computes with one thread, and prints a line of JSON for each
report, ``{"step": .., "time": ..}`` on the system's monotonic clock.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional as F  # noqa: N812  (its usual name)
from torch.nn.parallel import DistributedDataParallel

from benchmarks.models.torch_nets import BATCH_SIZE, LEARNING_RATE, NETWORKS, arrays


def main(network: str, report_steps: int) -> None:
    """Train until this process is killed."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    module = DistributedDataParallel(NETWORKS[network]())
    optimizer = torch.optim.SGD(module.parameters(), LEARNING_RATE)
    data = arrays({})
    images, labels = (torch.from_numpy(data[name])[dist.get_rank() :: dist.get_world_size()] for name in data)
    count = 0
    while True:
        for batch, wanted in zip(images.split(BATCH_SIZE), labels.split(BATCH_SIZE), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(module(batch), wanted).backward()
            optimizer.step()
            count += 1
            if count % report_steps == 0:
                print(json.dumps({"step": count, "time": time.monotonic()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
