"""Calls of the distribute coordinator that are compared with TensorFlow 2.15. Run, it writes what TensorFlow does.

Run from the root of the checkout, in an environment with tensorflow-cpu==2.15.1:
``PATH/TO/THAT/python tests/parity/coordinator.py``. Imported it needs neither TensorFlow nor psflow.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS_FILE = Path(__file__).with_name("coordinator.json")
FIELDS = ("task_type", "task_id", "is_chief", "num_workers", "distributed_mode", "master_target", "has_barrier")
OF_STRATEGY = ("experimental_should_init", "should_checkpoint", "should_save_summary")

FULL = {"chief": ["c:1"], "worker": ["w:1", "w:2"], "ps": ["p:1"], "evaluator": ["e:1"]}
NO_CHIEF = {"worker": ["w:1", "w:2", "w:3"], "ps": ["p:1"]}
CLIENT, INDEPENDENT = "standalone_client", "independent_worker"


class Extended:
    """What a strategy says: the task that was configured last decides."""

    def __init__(self, between_graph: bool) -> None:
        self.experimental_between_graph = between_graph
        self.experimental_should_init = self.should_checkpoint = self.should_save_summary = True


class Strategy:
    """A strategy whose answers depend on the task, each in its own way."""

    def __init__(self, between_graph: bool) -> None:
        self.extended = Extended(between_graph)
        self.configured: list[Any] = []

    def configure(
        self, session_config: Any = None, cluster_spec: Any = None, task_type: Any = None, task_id: Any = None
    ) -> None:
        """Note what it is configured for."""
        cluster = None if cluster_spec is None else cluster_spec.as_dict()
        self.configured.append([cluster, task_type, task_id])
        self.extended.experimental_should_init = task_type in (None, "chief") or task_id == 0
        self.extended.should_checkpoint = task_type != "worker"
        self.extended.should_save_summary = task_id != 1


def case(mode: str, cluster: Any, kind: str | None = None, index: int | None = None, **options: Any) -> dict[str, Any]:
    """Return one call; by default between-graph, with an eval_fn and without a strategy of the evaluator."""
    options = {"between_graph": True, "eval_fn": True, "eval_strategy": False, "rpc_layer": "grpc"} | options
    return {"mode": mode, "cluster_spec": cluster, "task_type": kind, "task_id": index, **options}


CASES = {
    "standalone": case(CLIENT, FULL),
    "standalone without a chief": case(CLIENT, NO_CHIEF),
    "standalone as the client that it is": case(CLIENT, FULL, "client", 0, rpc_layer=""),
    "standalone without eval_fn": case(CLIENT, FULL, eval_fn=False, eval_strategy=True),
    "standalone in graph": case(CLIENT, FULL, between_graph=False),
    "standalone in graph without a chief": case(CLIENT, NO_CHIEF, between_graph=False),
    "a chief": case(INDEPENDENT, FULL, "chief", 0),
    "a worker": case(INDEPENDENT, FULL, "worker", 1),
    "the first worker without a chief": case(INDEPENDENT, NO_CHIEF, "worker", 0),
    "another worker without a chief": case(INDEPENDENT, NO_CHIEF, "worker", 2),
    "a ps": case(INDEPENDENT, FULL, "ps", 0),
    "an evaluator": case(INDEPENDENT, FULL, "evaluator", 0),
    "an evaluator without eval_fn": case(INDEPENDENT, FULL, "evaluator", 0, eval_fn=False, eval_strategy=True),
    "a chief in graph": case(INDEPENDENT, FULL, "chief", 0, between_graph=False),
    "a worker in graph": case(INDEPENDENT, FULL, "worker", 0, between_graph=False),
    "the first worker without a chief in graph": case(INDEPENDENT, NO_CHIEF, "worker", 0, between_graph=False),
    "another worker without a chief in graph": case(INDEPENDENT, NO_CHIEF, "worker", 1, between_graph=False),
    "a ps in graph": case(INDEPENDENT, FULL, "ps", 0, between_graph=False),
    "local": case(CLIENT, None, eval_strategy=True),
    "local without eval_fn, in a mode that there is not": case("nearby", None, eval_fn=False, between_graph=False),
}


def called(run: Callable[..., Any], context: Callable[[], Any], num_served: Callable[[], int], case: Any) -> Any:
    """Return what is called of a case, with which context, what is returned, and how many tasks serve."""
    options, seen, lock = dict(case), [], threading.Lock()
    strategies = [Strategy(options["between_graph"]) for _ in range(2)]

    def function(name: str) -> Callable[[Any], str]:
        def note(strategy: Any) -> str:
            here = context()
            facts = {field: getattr(here, field) for field in FIELDS} | {"function": name}
            facts["cluster_spec"] = here.cluster_spec.as_dict() if here.cluster_spec else None
            facts["session_creator"] = type(here.session_creator()).__name__
            if strategy is not None:
                facts |= {field: getattr(here, field) for field in OF_STRATEGY}
                # TensorFlow configures the chief's once more, for its server
                facts["configured"] = strategy.configured[-1]
                facts["is_a_copy"] = strategy not in strategies
            with lock:
                seen.append(facts)
            return name

        return note

    returned = run(
        function("worker_fn"),
        strategies[0],
        function("eval_fn") if options["eval_fn"] else None,
        strategies[1] if options["eval_strategy"] else None,
        options["mode"],
        options["cluster_spec"],
        options["task_type"],
        options["task_id"],
        None,
        options["rpc_layer"],
    )
    seen.sort(key=lambda facts: (facts["task_type"] or "", facts["task_id"] or 0, facts["function"]))
    return {"seen": seen, "returned": returned, "num_served": num_served()}


def main() -> None:
    """Write what TensorFlow does."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    from tensorflow.python.distribute import distribute_coordinator, distribute_coordinator_context

    served: list[None] = []

    class Server:
        def join(self) -> None:
            served.append(None)

    def run(*arguments: Any) -> Any:
        served.clear()
        return distribute_coordinator.run_distribute_coordinator(*arguments)

    distribute_coordinator._run_std_server = lambda **options: Server()
    context = distribute_coordinator_context.get_current_worker_context
    calls = {name: called(run, context, lambda: len(served), case) for name, case in CASES.items()}
    facts = {"tensorflow": tf.__version__, "calls": calls}
    CALLS_FILE.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
