"""TF_CONFIG, and the flags that came before it: who is in a hand-made cluster, and who am I."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ps_runtime.errors import ConfigError, did_you_mean
from ps_runtime.specs.roles import Role

__all__ = ["ClusterConfig", "TaskConfig", "TfConfig", "parse_flags", "parse_tf_config"]

MASTER, CLIENT = "master", "client"
ROLES = ("chief", "worker", "ps", "evaluator", MASTER)

TF_CONFIG_NAMES = {
    "cluster": "TF_CONFIG cluster",
    "ps": "TF_CONFIG cluster.ps",
    "worker": "TF_CONFIG cluster.worker",
    "chief": "TF_CONFIG cluster.chief",
    "type": "TF_CONFIG task.type",
    "index": "TF_CONFIG task.index",
}
FLAG_NAMES = {
    "cluster": "--ps_hosts and --worker_hosts",
    "ps": "--ps_hosts",
    "worker": "--worker_hosts",
    "chief": "--worker_hosts",
    "type": "--job_name",
    "index": "--task_index",
}


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The addresses, ``host:port``, of a training cluster; empty for a local run, and as the evaluator sees it."""

    chief: str | None = None
    workers: tuple[str, ...] = ()
    ps: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.chief is not None


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """Which role of the cluster this process is.

    Parameters
    ----------
    role : Role or None
        None for the standalone client, which directs a cluster and is no role of it.
    index : int
        Among the roles of its kind.
    evaluates : bool
        Whether a chief evaluates too (task type ``master``, deprecated).
    """

    role: Role | None = Role.CHIEF
    index: int = 0
    evaluates: bool = False


@dataclass(frozen=True, slots=True)
class TfConfig:
    """TF_CONFIG, normalised: there is one chief, and evaluators are outside the cluster. Empty: a local run."""

    cluster: ClusterConfig = ClusterConfig()
    task: TaskConfig = TaskConfig()
    model_dir: str | None = None
    environment: str | None = None


def parse_tf_config(text: str) -> TfConfig:
    """Parse the value of ``TF_CONFIG``.

    ``{"cluster": {role: [host:port, ...]}, "task": {"type", "index"}, "model_dir"?, "environment"?}``. An evaluator may
    stand inside the cluster or outside. Without a chief, worker 0 is the chief and later indices shift down by one.

    Parameters
    ----------
    text : str
        JSON; an empty text, and one without a cluster, mean a local run.

    Raises
    ------
    ConfigError
        If it is malformed, or contradicts itself; it names every field that is wrong.

    Examples
    --------
    >>> parse_tf_config('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}').task
    TaskConfig(role=<Role.WORKER: 'worker'>, index=0, evaluates=False)
    """
    try:
        facts = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigError((f"TF_CONFIG: expected JSON, {error}",)) from None
    if not isinstance(facts, dict):
        raise ConfigError((f"TF_CONFIG: expected a JSON object, got {facts!r}",))
    return _Parser(TF_CONFIG_NAMES).parse(facts)


def parse_flags(ps_hosts: str, worker_hosts: str, job_name: str, task_index: int) -> TfConfig:
    """Parse the flags ``--ps_hosts a:1,b:1 --worker_hosts c:1,d:1 --job_name worker --task_index 1``.

    The first worker becomes the chief, and later indices shift down by one. Hosts are separated by ``,`` or ``;``.

    Raises
    ------
    ConfigError
        As `parse_tf_config`, naming the flags.
    """
    hosts = {"ps": ps_hosts, "worker": worker_hosts}
    cluster = {role: _split(text) for role, text in hosts.items() if text.strip()}
    return _Parser(FLAG_NAMES).parse({"cluster": cluster, "task": {"type": job_name, "index": task_index}})


def _split(hosts: str) -> list[str]:
    return [host.strip() for host in hosts.replace(";", ",").split(",")]


class _Parser:
    """Checks everything and raises once; `names` says what each field is called where the user wrote it."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._faults: list[str] = []

    def parse(self, facts: Mapping[str, Any]) -> TfConfig:
        known = ("cluster", "task", "model_dir", "environment")
        self._faults += [
            f"TF_CONFIG {key}: unknown field{did_you_mean(key, known)}" for key in facts if key not in known
        ]
        addresses = self._addresses(self._object(facts, "cluster"))
        role, index = self._task(self._object(facts, "task"), addresses)
        model_dir, environment = (self._text(facts, key) for key in ("model_dir", "environment"))
        if self._faults:
            raise ConfigError(tuple(self._faults))
        cluster, task = _normalised(addresses, role, index)
        return TfConfig(cluster, task, model_dir, environment)

    def _fault(self, name: str, sentence: str) -> None:
        self._faults.append(f"{self._names.get(name, f'TF_CONFIG cluster.{name}')}: {sentence}")

    def _object(self, facts: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = facts.get(key)
        if isinstance(value, dict):
            return value
        if value is None:
            return {}
        self._faults.append(f"TF_CONFIG {key}: expected a JSON object, got {value!r}")
        return {}

    def _text(self, facts: Mapping[str, Any], key: str) -> str | None:
        value = facts.get(key)
        if value is None or isinstance(value, str):
            return value or None
        self._faults.append(f"TF_CONFIG {key}: expected a string, got {value!r}")
        return None

    def _addresses(self, cluster: Mapping[str, Any]) -> dict[str, list[str]]:
        addresses: dict[str, list[str]] = {}
        seen: dict[str, str] = {}
        for role, hosts in cluster.items():
            if role not in ROLES:
                self._fault(role, f"unknown role, expected one of {', '.join(ROLES)}{did_you_mean(role, ROLES)}")
            elif not isinstance(hosts, list) or not all(_is_address(host) for host in hosts):
                self._fault(role, f"expected a list of host:port, got {hosts!r}")
            elif hosts:
                addresses[role] = hosts
                for host in hosts:
                    if seen.setdefault(host, role) != role or hosts.count(host) > 1:
                        self._fault(role, f"{host} is there twice")
        if cluster and not self._faults:
            self._check_chief(addresses)
        return addresses

    def _check_chief(self, addresses: Mapping[str, list[str]]) -> None:
        chiefs = addresses.get("chief", []) + addresses.get(MASTER, [])
        if len(chiefs) > 1:
            self._fault("chief", f"expected exactly one chief, got {', '.join(chiefs)}")
        if not chiefs and "worker" not in addresses:
            self._fault("chief", "expected exactly one chief, got none, and no worker that could be it")
        if MASTER in addresses and "evaluator" in addresses:
            self._fault("evaluator", "a master evaluates itself; name the master chief, or leave the evaluator out")

    def _task(self, task: Mapping[str, Any], addresses: Mapping[str, list[str]]) -> tuple[str, int]:
        known = ("type", "index")
        self._faults += [
            f"TF_CONFIG task.{key}: unknown field{did_you_mean(key, known)}" for key in task if key not in known
        ]
        local = not addresses
        role = task.get("type", "chief" if local else None)
        index = task.get("index", 0 if local or role == CLIENT else None)
        if self._faults:
            return "chief", 0
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            self._fault("index", f"expected an integer >= 0, got {'nothing' if index is None else repr(index)}")
        elif role is None or not isinstance(role, str):
            self._fault("type", f"expected a role, got {'nothing' if role is None else repr(role)}")
        elif role not in (*ROLES, CLIENT):
            self._fault("type", f"unknown role {role!r}, expected one of {', '.join(ROLES)}{did_you_mean(role, ROLES)}")
        elif local:
            self._check_local_task(role, index)
        else:
            self._check_cluster_task(role, index, addresses)
        return str(role), index if isinstance(index, int) else 0

    def _check_local_task(self, role: str, index: int) -> None:
        if role not in ("chief", "worker", MASTER):
            self._fault("type", f"{role!r} needs a cluster; set {self._names['cluster']}")
        elif index:
            self._fault("index", f"expected 0 without a cluster, got {index}; set {self._names['cluster']}")

    def _check_cluster_task(self, role: str, index: int, addresses: Mapping[str, list[str]]) -> None:
        if role == "evaluator":
            if MASTER in addresses:
                self._fault("type", "a master evaluates itself; name the master chief, or leave the evaluator out")
            if index:
                self._fault("index", f"expected 0, got {index}: a job has one evaluator")
        elif role == CLIENT:
            return
        elif role not in addresses:
            self._fault("type", f"{role!r} is not in the cluster, which has {', '.join(addresses)}")
        elif index >= len(addresses[role]):
            self._fault(
                "index", f"expected less than {len(addresses[role])}, the number of {role} addresses, got {index}"
            )


def _is_address(host: object) -> bool:
    if not isinstance(host, str):
        return False
    name, _, port = host.rpartition(":")
    return bool(name) and port.isascii() and port.isdigit() and 0 < int(port) < 65536


def _normalised(addresses: Mapping[str, list[str]], role: str, index: int) -> tuple[ClusterConfig, TaskConfig]:
    workers = list(addresses.get("worker", []))
    chiefs = addresses.get("chief", []) + addresses.get(MASTER, [])
    if not chiefs and role == "worker":
        role, index = ("worker", index - 1) if index else ("chief", 0)
    chief = chiefs[0] if chiefs else workers.pop(0) if workers else None
    cluster = ClusterConfig(chief, tuple(workers), tuple(addresses.get("ps", [])))
    if role == CLIENT:
        return cluster, TaskConfig(None, 0)
    if role == "evaluator":
        return ClusterConfig(), TaskConfig(Role.EVALUATOR, 0)
    if role == MASTER:
        return cluster, TaskConfig(Role.CHIEF, 0, evaluates=True)
    return cluster, TaskConfig(Role(role), index)
