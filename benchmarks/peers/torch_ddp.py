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
from torch.nn.parallel import DistributedDataParallel

from benchmarks.models.torch_nets import LEARNING_RATE, NETWORKS, batches


def main(name: str, report_steps: int) -> None:
    """Train until this process is killed."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    network = NETWORKS[name]
    module = DistributedDataParallel(network.build())
    optimizer = torch.optim.SGD(module.parameters(), LEARNING_RATE)
    own = slice(dist.get_rank(), None, dist.get_world_size())
    for count, (features, labels) in enumerate(batches(name, own), start=1):
        optimizer.zero_grad()
        network.loss(module(features), labels).backward()
        optimizer.step()
        if count % report_steps == 0:
            print(json.dumps({"step": count, "time": time.monotonic()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
