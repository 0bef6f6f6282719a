"""Finds the task of a coordinator in the arguments of its call and in TF_CONFIG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.config.environment import tf_config
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.specs.cluster_task import ClusterTask, TaskType
from psflow.ps_runtime.specs.task_facts import ClusterSpec
from psflow.ps_runtime.specs.tf_config import TfConfig, TfConfigSource, load_tf_config, tf_config_of

ARGUMENTS = TfConfigSource("run_distribute_coordinator", "task_type", "task_id")
ENVIRONMENT = TfConfigSource()
ALONE = ({"type": "client"}, {"type": "client", "index": 0})
"""Tasks of TF_CONFIG for this process alone, where there is no cluster."""


@dataclass(frozen=True)
class GivenTask:
    """One task of a cluster, as given; a ClusterTask counts the workers from 0, without the chief."""

    content: Mapping[str, Any]
    config: TfConfig
    rpc_layer: str

    @property
    def cluster_spec(self) -> ClusterSpec:
        """All tasks by type, as given; empty without a cluster."""
        return ClusterSpec({kind: tuple(names) for kind, names in self.content.get("cluster", {}).items() if names})

    @property
    def task(self) -> ClusterTask:
        """The process of this task; there must be a cluster."""
        assert self.config.task is not None, "a coordinator without a cluster has no task"
        return self.config.task

    @property
    def task_type(self) -> TaskType:
        """The type of this task, as given."""
        return TaskType(self.content["task"]["type"])

    @property
    def task_id(self) -> int:
        """Its index among the tasks of that type, as given."""
        index: int = self.content["task"].get("index", 0)
        return index

    def of(self, task_type: TaskType, task_id: int) -> GivenTask:
        """Return another task of the cluster."""
        content = {**self.content, "task": {"type": str(task_type), "index": task_id}}
        return GivenTask(content, tf_config_of(content, ARGUMENTS), self.rpc_layer)


def find_task(
    cluster_spec: Mapping[str, Sequence[str]] | ClusterSpec | None,
    task_type: str | None,
    task_id: int | None,
    rpc_layer: str | None,
) -> GivenTask:
    """Return the task of this process: `cluster_spec` overrides the cluster of TF_CONFIG, but not its task.

    Without a task from either, the process is the client. A client without a cluster is this process alone.

    Raises ConfigError with every fault, by the name of its field.
    """
    environment = load_tf_config(tf_config() or "{}")
    layer = environment.get("rpc_layer", rpc_layer)
    if not isinstance(layer, str | None):
        raise ConfigError((f"{ENVIRONMENT.name}: rpc_layer should be a text, got {layer!r}",))
    content, source = dict(environment), ENVIRONMENT
    if cluster_spec:
        tf_config_of({name: value for name, value in environment.items() if name not in ("cluster", "task")})
        tasks = cluster_spec.tasks if isinstance(cluster_spec, ClusterSpec) else cluster_spec
        given = {kind: list(names) if isinstance(names, tuple) else names for kind, names in tasks.items()}
        content, source = {**environment, "cluster": given, "task": {}}, ARGUMENTS
    if isinstance(content.get("cluster"), dict) and content["cluster"] and content.get("task", {}) == {}:
        task = {"type": task_type, "index": task_id}
        content["task"] = {name: value for name, value in task.items() if value is not None} or {"type": "client"}
        source = TfConfigSource(source.name, ARGUMENTS.type_name, ARGUMENTS.index_name)
    elif not content.get("cluster") and content.get("task") in ALONE:
        del content["task"]
    found = GivenTask(content, tf_config_of(content, source), layer or "")
    if TaskType.MASTER in found.cluster_spec.jobs:
        raise ConfigError(
            (f"{source.name}: cluster.master: the distribute coordinator knows a chief and an evaluator",)
        )
    return found
