"""A Dask cluster as others have it, each node a process: a scheduler, and Dask workers with their nannies."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import dask
from distributed import Client, Nanny
from distributed._signals import wait_for_signals

from psflow.ps_runtime.cluster.closed_nodes import QUIET, ClosedScheduler, ClosedWorker

LOOPBACK = "127.0.0.1"
NODE_CONFIG = {
    **QUIET,
    "distributed.worker.multiprocessing-method": "fork",  # a node is a copy of the fork server, and cannot ask it
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
}
CONNECT_SECS = 300.0
"""For a cluster to be there, and for a client to reach it."""

CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Nodes:
    """The processes of a cluster.

    Parameters
    ----------
    address : str
        Of the scheduler.
    scheduler : Process
        That it runs in.
    """

    address: str
    scheduler: multiprocessing.process.BaseProcess


@contextmanager
def running_nodes(num_workers: int) -> Iterator[Nodes]:
    """Run a scheduler and so many Dask workers for the time of a block."""
    with ExitStack() as stack:
        here, there = CONTEXT.Pipe()
        scheduler = stack.enter_context(running(_serve, there))
        address = here.recv()
        for _ in range(num_workers):
            stack.enter_context(running(_work, address))
        with Client(address, timeout=CONNECT_SECS) as client:
            client.wait_for_workers(num_workers, timeout=CONNECT_SECS)
        yield Nodes(address, scheduler)


@contextmanager
def running(target: Any, *arguments: Any) -> Iterator[multiprocessing.process.BaseProcess]:
    """Run a function in a process of its own, which ends with the block."""
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _serve(told: Connection) -> None:
    """Be a scheduler, as ``dask scheduler`` is."""

    async def serve() -> None:
        async with ClosedScheduler(host=LOOPBACK, port=0, dashboard=False) as scheduler:
            told.send(scheduler.address)
            await _last(scheduler)

    logging.disable()  # what ends, and how, is the trial's to judge
    with dask.config.set(NODE_CONFIG):
        asyncio.run(serve())


def _work(address: str) -> None:
    """Be a nanny, as ``dask worker`` is."""

    async def work() -> None:
        async with Nanny(address, host=LOOPBACK, nthreads=1, worker_class=ClosedWorker, memory_limit=None) as nanny:
            await _last(nanny)

    logging.disable()  # what ends, and how, is the trial's to judge
    with dask.config.set(NODE_CONFIG):
        asyncio.run(work())


async def _last(node: Any) -> None:
    """Wait until a node has ended, or a signal ends it."""
    signalled, ended = asyncio.create_task(wait_for_signals()), asyncio.create_task(node.finished())
    done, _ = await asyncio.wait([signalled, ended], return_when=asyncio.FIRST_COMPLETED)
    if signalled in done:
        await node.close(reason=f"signal {signalled.result()}")
