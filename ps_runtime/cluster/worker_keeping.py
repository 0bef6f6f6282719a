"""Keeps the number of worker processes of our own clusters by replacing lost ones.

A nanny restarts its worker process. A nanny that cannot do so in time closes for good, as does one whose process is
away at the moment at which Dask looks, some seconds after a loss. Dask replaces neither.
"""

from __future__ import annotations

import logging
from functools import partial

from distributed import SpecCluster, Status
from tornado.ioloop import PeriodicCallback

from psflow.ps_runtime.cluster.failures import with_causes

KEEPS_NANNIES = {"distributed.deploy.lost-worker-timeout": "1 day"}
"""As Dask's configuration: a nanny that is just restarting its process does not count as closed."""
LOOK_SECS = 1.0
"""Between two looks for closed nannies."""

_log = logging.getLogger(__name__)


def keep_workers(cluster: SpecCluster) -> None:
    """Have a cluster replace each nanny that has given up, as long as it wants workers and is not closed."""
    assert cluster.loop is not None, "it runs in a thread of its own"
    callback = PeriodicCallback(partial(replace_closed, cluster), LOOK_SECS * 1000)
    cluster.periodic_callbacks["psflow-keep-workers"] = callback  # the cluster stops it as it closes
    cluster.loop.add_callback(callback.start)


def want_no_workers(cluster: SpecCluster) -> None:
    """Have a cluster replace no workers any more."""
    cluster.worker_spec.clear()


async def replace_closed(cluster: SpecCluster) -> None:
    """Replace the nannies of a cluster that have given up; failed starts are left to the next look."""
    for name, nanny in list(cluster.workers.items()):
        if nanny.status in (Status.closed, Status.failed):
            del cluster.workers[name]
    if cluster.worker_spec.keys() <= cluster.workers.keys():
        return
    try:
        await cluster._correct_state()
    except Exception as error:  # a nanny reports any end of its worker as a failed start
        _log.warning("a worker process did not start, psflow will try again: %s", with_causes(error))
