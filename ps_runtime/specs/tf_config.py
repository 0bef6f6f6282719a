"""TF_CONFIG: JSON that describes a cluster and the process in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.errors import ConfigError, did_you_mean
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses, ClusterTask, TaskType, worker_or_chief
from psflow.ps_runtime.specs.task_facts import address_faults, duplicate_faults, index_fault, num_addresses, whole_fault

KEYS = ("cluster", "task", "model_dir", "environment")
TASK_KEYS = ("type", "index")
OF_PLATFORMS = ("job", "service", "rpc_layer", "cloud", "trial")
"""Keys that launchers of TensorFlow processes add. They do not describe roles."""
TASK_TYPES = [kind.value for kind in TaskType]
ROLES = [kind.value for kind in TaskType if kind is not TaskType.CLIENT]
SINGLE = (TaskType.CHIEF, TaskType.MASTER, TaskType.EVALUATOR)
"""Types of which a cluster has at most one."""
MAX_SHOWN = 60
"""Length limit of quoted text that is not JSON."""


@dataclass(frozen=True, slots=True)
class TfConfigSource:
    """The names of a cluster and its task in error messages."""

    name: str = "TF_CONFIG"
    type_name: str = "task.type"
    index_name: str = "task.index"


@dataclass(frozen=True, slots=True)
class TfConfig:
    """The content of TF_CONFIG."""

    task: ClusterTask | None = None
    model_dir: str | None = None


def parse_tf_config(text: str) -> TfConfig:
    """Parse TF_CONFIG.

    An evaluator may stand in ``cluster``, or have no address. Without a chief, worker 0 is the chief, and the indices
    of the other workers shift down by one. A ``master`` is a chief that evaluates, too.

    Raises ConfigError with every fault, by the name of its field.

    Examples
    --------
    >>> text = '{"cluster": {"worker": ["a:1", "b:1"], "ps": ["c:1"]}, "task": {"type": "worker", "index": 1}}'
    >>> task = parse_tf_config(text).task
    >>> task.cluster.chief, task.cluster.workers, str(task.role)
    ('a:1', ('b:1',), 'worker-0')
    """
    return tf_config_of(load_tf_config(text))


def tf_config_of(content: Mapping[str, Any], source: TfConfigSource = TfConfigSource()) -> TfConfig:
    """Return the parsed content of TF_CONFIG.

    Raises ConfigError with every fault, by the name of its field; faults that depend on others are reported after those
    are corrected.
    """
    faults: list[str] = []
    _check_keys("", content, KEYS, faults)
    for name in ("model_dir", "environment"):
        _check_text(name, content, faults)
    cluster, task = _mapping(content, "cluster", faults), _mapping(content, "task", faults)
    _check_keys("task.", task, TASK_KEYS, faults)
    if not cluster:
        if not content.get("cluster"):  # otherwise it has another type
            _check_alone(task, source, faults)
        _raise(faults, source)
        return TfConfig(None, content.get("model_dir"))
    addresses = _addresses(cluster, faults)
    _check_form(task, source, faults)
    _raise(faults, source)
    _check_roles(addresses, faults)
    _raise(faults, source)
    _check_task(task, addresses, source, faults)
    _raise(faults, source)
    return TfConfig(_normalised(addresses, TaskType(task["type"]), task.get("index", 0)), content.get("model_dir"))


def load_tf_config(text: str) -> Mapping[str, Any]:
    """Return the JSON object of TF_CONFIG; ConfigError if it is not one."""
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    try:
        content = json.loads(text, object_pairs_hook=_without_repeats)
    except ConfigError:
        raise
    except ValueError as error:  # also for a number with thousands of digits
        raise ConfigError((f"TF_CONFIG should be a JSON object, got {shown!r}: {error}",)) from None
    except RecursionError:
        raise ConfigError((f"TF_CONFIG should be a JSON object, got one nested too deeply: {shown!r}",)) from None
    if not isinstance(content, dict):
        raise ConfigError((f"TF_CONFIG should be a JSON object, got {shown!r}",))
    return content


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise ConfigError((f"TF_CONFIG: {repeated!r} occurs twice in one object; keep one of them",))
    return content


def _check_keys(where: str, content: Mapping[str, Any], known: tuple[str, ...], faults: list[str]) -> None:
    for key in content:
        if key not in (*known, *OF_PLATFORMS):
            near = did_you_mean(key, known) or "; leave out other keys"
            faults.append(f"{where}{key}: expected one of {', '.join(known)}{near}")


def _check_text(name: str, content: Mapping[str, Any], faults: list[str]) -> None:
    if name in content and (not isinstance(content[name], str) or not content[name]):
        faults.append(f"{name} should be a text that is not empty, got {content[name]!r}")


def _mapping(content: Mapping[str, Any], name: str, faults: list[str]) -> Mapping[str, Any]:
    given = content.get(name, {})
    if isinstance(given, dict):
        return given
    faults.append(f"{name} should be an object, got {given!r}")
    return {}


def _check_alone(task: Mapping[str, Any], source: TfConfigSource, faults: list[str]) -> None:
    """Refuse a process of a missing cluster: it would train alone."""
    for key, name, alone in (("type", source.type_name, "worker"), ("index", source.index_name, 0)):
        given = task.get(key, alone)
        if type(given) is not type(alone) or given != alone:
            faults.append(f"{name} should be {alone!r} where there is no cluster, got {given!r}; give cluster")


def _check_form(task: Mapping[str, Any], source: TfConfigSource, faults: list[str]) -> None:
    """Refuse a type and an index that no process of any cluster can have."""
    kind = task.get("type")
    if "type" in task and kind not in TASK_TYPES:
        near = did_you_mean(kind, TASK_TYPES) if isinstance(kind, str) else ""
        faults.append(f"{source.type_name} should be one of {', '.join(TASK_TYPES)}, got {kind!r}{near}")
    if (fault := whole_fault(source.index_name, task.get("index", 0))) is not None:
        faults.append(fault)


def _addresses(cluster: Mapping[Any, Any], faults: list[str]) -> dict[TaskType, tuple[str, ...]]:
    """Return the addresses of each type of task, in the order of the types."""
    for name in cluster:
        if name not in ROLES:
            near = did_you_mean(name, ROLES) if isinstance(name, str) else ""
            faults.append(f"cluster.{name}: expected one of {', '.join(ROLES)}{near}")
    found = {TaskType(kind): cluster[kind] for kind in ROLES if kind in cluster}
    for kind, given in found.items():
        name = f"cluster.{kind}"
        if not isinstance(given, list):
            faults.append(f"{name} should be a list of addresses, got {given!r}")
        elif not given and kind is not TaskType.WORKER:  # programs list only those beside the chief, possibly none
            faults.append(f"{name} should have an address, got an empty list; leave it out if there is no {kind}")
        elif kind in SINGLE and len(given) > 1:
            faults.append(f"{name} should have one address, got {len(given)}: {', '.join(map(str, given))}")
        else:
            faults += address_faults(name, given)
    if not faults:
        faults += duplicate_faults({f"cluster.{kind}": given for kind, given in found.items()})
    return {kind: tuple(given) for kind, given in found.items() if given}


def _check_roles(addresses: Mapping[TaskType, tuple[str, ...]], faults: list[str]) -> None:
    if not {TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER} & addresses.keys():
        faults.append(
            f"cluster should have one chief, or workers of which the first is the chief, got {_list(addresses)}"
        )
    if TaskType.MASTER in addresses:
        for other in (TaskType.CHIEF, TaskType.EVALUATOR):
            if other in addresses:
                faults.append(f"cluster has a master and {_named(other)}: a master is both; leave one of the two out")


def _check_task(
    task: Mapping[str, Any], addresses: Mapping[TaskType, tuple[str, ...]], source: TfConfigSource, faults: list[str]
) -> None:
    is_client = task.get("type") == TaskType.CLIENT
    names = {"type": source.type_name, "index": source.index_name}
    lacking = [key for key in TASK_KEYS if key not in task and not (is_client and key == "index")]
    if lacking:
        missing = " and ".join(names[key] for key in lacking)
        faults.append(f"{missing} missing: give the type and the index of this process in cluster")
        return
    kind = TaskType(task["type"])
    num, why = _how_many(kind, addresses)
    if not num:
        faults.append(
            f"{source.type_name} is {kind}, but cluster has {_list(addresses)}: the address of this process is missing"
        )
    elif (fault := index_fault(source.index_name, task.get("index", 0), num, why)) is not None:
        faults.append(fault)
    elif kind == TaskType.EVALUATOR and TaskType.MASTER in addresses:
        what = f"{source.type_name} is evaluator, but cluster has a master, which evaluates itself"
        faults.append(f"{what}: do not start an evaluator")


def _how_many(kind: TaskType, addresses: Mapping[TaskType, tuple[str, ...]]) -> tuple[int, str]:
    """Return the number of processes of a type, and its source for messages."""
    if kind in (TaskType.EVALUATOR, TaskType.CLIENT):
        return 1, f"there is one {kind}"
    num = len(addresses.get(kind, ()))
    return num, num_addresses(f"cluster.{kind}", num)


def _normalised(addresses: Mapping[TaskType, tuple[str, ...]], kind: TaskType, index: int) -> ClusterTask:
    workers = addresses.get(TaskType.WORKER, ())
    chiefs = addresses.get(TaskType.CHIEF) or addresses.get(TaskType.MASTER)
    if chiefs is None:
        chiefs, workers = workers[:1], workers[1:]
        if kind is TaskType.WORKER:
            kind, index = worker_or_chief(index)
    cluster = ClusterAddresses(
        chiefs[0],
        workers,
        addresses.get(TaskType.PS, ()),
        next(iter(addresses.get(TaskType.EVALUATOR, ())), None),
        TaskType.MASTER in addresses,
    )
    return ClusterTask(cluster, kind, index)


def _list(addresses: Mapping[TaskType, tuple[str, ...]]) -> str:
    return ", ".join(addresses) + " only" if addresses else "no address at all"


def _named(kind: TaskType) -> str:
    return f"an {kind}" if kind is TaskType.EVALUATOR else f"a {kind}"


def _raise(faults: list[str], source: TfConfigSource) -> None:
    if faults:
        raise ConfigError(tuple(f"{source.name}: {fault}" for fault in faults))
