"""The upper limit of any ps: the small network over shared memory, without roles, tickets, hooks, checks or messages.

``python -m benchmarks.bare_protocol`` alternates one ps and two replicas with two bare gradient loops.
"""

from __future__ import annotations

import mmap
import multiprocessing
import select
import socket
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.models import mlp

__all__ = ["main"]

NUM_REPLICAS = 2
NUM_PAIRS = 9
WARM_UP_SECS, SECS = 0.5, 2.0
NUM_PARAMETERS = sum(int(np.prod(shape)) for shape in mlp.SHAPES.values())

Floats = NDArray[np.float32]


class Memory:
    """Shared memory: parameters, and a gradient and a step count for each replica."""

    def __init__(self) -> None:
        self.arena: Floats = _shared(NUM_PARAMETERS, np.float32)
        self.arena[:] = np.random.default_rng(0).normal(size=NUM_PARAMETERS) * 0.05
        self.counter: NDArray[np.int64] = _shared(1, np.int64)
        """Odd while the arena changes."""
        self.gradients: list[Floats] = [_shared(NUM_PARAMETERS, np.float32) for _ in range(NUM_REPLICAS)]
        self.counts: NDArray[np.int64] = _shared(NUM_REPLICAS, np.int64)


def serve(memory: Memory, ends: list[socket.socket]) -> None:
    """Apply each gradient that a replica announces."""
    poll = select.epoll()
    peers = {end.fileno(): (end, gradient) for end, gradient in zip(ends, memory.gradients, strict=True)}
    for number in peers:
        poll.register(number, select.EPOLLIN)
    while True:
        for number, _ in poll.poll():
            end, gradient = peers[number]
            end.recv(1)
            memory.counter[0] += 1
            np.multiply(gradient, mlp.LEARNING_RATE, out=gradient)
            np.subtract(memory.arena, gradient, out=memory.arena)
            memory.counter[0] += 1
            end.send(b"1")


def train(memory: Memory, index: int, end: socket.socket) -> None:
    """Repeat: copy one version, compute, hand over the gradient, wait."""
    data = mlp.arrays({})
    pulled = np.empty_like(memory.arena)
    variables, pushed = _views(pulled), _views(memory.gradients[index])
    start = 0
    while True:
        before = -1
        while before & 1 or before != memory.counter[0]:
            before = int(memory.counter[0])
            pulled[:] = memory.arena
        batch = slice(start, start + mlp.BATCH_SIZE)
        start = (start + mlp.BATCH_SIZE) % mlp.NUM_IMAGES
        images, labels = data["features"][batch], data["labels"][batch]
        _, gradients = mlp.loss_and_gradients(variables, images, labels, pushed["hidden/kernel"])
        for name, gradient in gradients.items():
            if gradient is not pushed[name]:
                pushed[name][...] = gradient
        end.send(b"1")
        end.recv(1)
        memory.counts[index] += 1


def loop(memory: Memory, index: int) -> None:
    """Compute bare gradients."""
    step = mlp.bare_step({})
    while True:
        step()
        memory.counts[index] += 1


def with_ps() -> float:
    """Return the steps/s of replicas and their ps."""
    memory = Memory()
    pairs = [socket.socketpair() for _ in range(NUM_REPLICAS)]
    replicas = [partial(train, memory, index, theirs) for index, (_, theirs) in enumerate(pairs)]
    rate = _rate(memory, [partial(serve, memory, [mine for mine, _ in pairs]), *replicas])
    for end in [end for pair in pairs for end in pair]:
        end.close()
    return rate


def without_ps() -> float:
    """Return the steps/s of bare loops."""
    memory = Memory()
    return _rate(memory, [partial(loop, memory, index) for index in range(NUM_REPLICAS)])


def main() -> None:
    """Measure both in turn, and print the medians."""
    with threadpool_limits(limits=1):
        pairs = [(with_ps(), without_ps()) for _ in range(NUM_PAIRS)]
    rates, limits = (statistics.median(of_one) for of_one in zip(*pairs, strict=True))
    ratio = statistics.median(rate / limit for rate, limit in pairs)
    print(f"{rates:.0f} steps/s with a ps, {limits:.0f} without: a ratio of {ratio:.2f}, median of {NUM_PAIRS} pairs")


def _rate(memory: Memory, tasks: list[Callable[[], None]]) -> float:
    """Run each task in a process of its own; return the steps/s of all."""
    processes = [multiprocessing.get_context("fork").Process(target=task) for task in tasks]
    for process in processes:
        process.start()
    try:
        time.sleep(WARM_UP_SECS)
        before, began_at = memory.counts.sum(), time.monotonic()
        time.sleep(SECS)
        return float(memory.counts.sum() - before) / (time.monotonic() - began_at)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _shared(size: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Return zeros that children made by fork share."""
    return np.frombuffer(mmap.mmap(-1, size * np.dtype(dtype).itemsize), dtype)


def _views(parameters: Floats) -> dict[str, Floats]:
    views, start = {}, 0
    for name, shape in mlp.SHAPES.items():
        stop = start + int(np.prod(shape))
        views[name], start = parameters[start:stop].reshape(shape), stop
    return views


if __name__ == "__main__":
    main()
