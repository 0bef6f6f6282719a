"""A process of a cluster that has no program of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.errors import ArgumentTypeError, ConfigError, UsageError
from psflow.ps_runtime.estimator.by_hand import JOIN_TIMEOUT_SECS, serve_by_hand
from psflow.ps_runtime.specs.cluster_task import ClusterTask
from psflow.ps_runtime.specs.directories import absolute
from psflow.ps_runtime.specs.task_facts import ClusterSpec
from psflow.ps_runtime.specs.tf_config import Source, tf_config_of

__all__ = ["Server"]

SOURCE = Source("Server", "job_name", "task_index")


class Server:
    """One process of a cluster, as programs with flags name it: an alternative to TF_CONFIG.

    Parameters
    ----------
    cluster : ClusterSpec, or mapping of str to sequence of str
        Addresses ``host:port`` by type: ``chief``, ``worker``, ``ps``. Without a chief, worker 0 is the chief.
    job_name : str
        The type of this process.
    task_index : int
        Its index among those of its type, from 0.

    Attributes
    ----------
    target : ClusterTask
        This process, as RunConfig takes it.

    Raises
    ------
    ConfigError
        With every fault, by the name of its field; an ArgumentTypeError if the cluster is of another type.

    Examples
    --------
    ::

        server = Server({"ps": ["ada:2222"], "worker": ["bob:2222", "cleo:2222"]}, job_name, task_index)
        if job_name == "ps":
            server.join("/shared/mnist")
        else:
            config = RunConfig("/shared/mnist", cluster=server.target)
    """

    def __init__(self, cluster: ClusterSpec | Mapping[str, Sequence[str]], job_name: str, task_index: int) -> None:
        if not isinstance(cluster, ClusterSpec | Mapping):
            what = f"a ClusterSpec, or a mapping of types to addresses, got {type(cluster).__name__} {cluster!r}"
            raise ArgumentTypeError((f"Server: cluster should be {what}",))
        given = cluster.as_dict() if isinstance(cluster, ClusterSpec) else dict(cluster)
        addresses = {kind: list(found) if isinstance(found, tuple) else found for kind, found in given.items()}
        told = tf_config_of({"cluster": addresses, "task": {"type": job_name, "index": task_index}}, SOURCE)
        if told.task is None:
            raise ConfigError(("Server: cluster should have addresses, got none",))
        self.target: ClusterTask = told.task

    def join(self, model_dir: str | os.PathLike[str]) -> None:
        """Be this role of the job that the chief leads, until that has ended. Blocks.

        model_fn and input are those of the chief's process.

        Parameters
        ----------
        model_dir : str or path
            Of the job.

        Raises
        ------
        UsageError
            If this process is the chief or a client, or cannot listen at its address; or if the cluster has no ps. An
            ArgumentTypeError if `model_dir` is no path.
        ConfigError
            If the chief has another cluster, or another model_dir.
        WaitTimeoutError
            If there is no chief within 40 s, whatever ``session_creation_timeout_secs`` the chief has.
        StoppedError
            If the job failed, or the chief is gone.
        """
        if self.target.facts.is_chief:
            what = "the chief leads the job and joins nobody; let it call train_and_evaluate, or have a session"
            raise UsageError((f"Server.join: {what}",))
        directory = os.fspath(model_dir) if isinstance(model_dir, os.PathLike) else model_dir
        if not isinstance(directory, str):
            what = f"a str or path, got {type(model_dir).__name__} {model_dir!r}"
            raise ArgumentTypeError((f"Server.join: model_dir should be {what}",))
        if not directory:
            raise UsageError(("Server.join: model_dir should be that of the chief, got ''",))
        serve_by_hand(self.target, absolute(directory), JOIN_TIMEOUT_SECS, never_stop)
