"""What ``psflow diff`` answers: only what differs between two runs."""

from __future__ import annotations

from psflow.flows.answering.answer import Answer
from psflow.tasks.tracking.comparing import RunFacts, differences, find_run, run_facts
from psflow.tasks.tracking.store import mlflow_client, prepare_store

__all__ = ["diff"]


def diff(first: str, second: str, *, shows_all: bool = False) -> Answer:
    """Compare two runs of the MLflow store: parameters, data sets, code and final metrics.

    Raises
    ------
    UsageError
        If one of them is no run, or not one run.
    """
    client = mlflow_client(prepare_store())
    left, right = (run_facts(find_run(client, text), of_the_machine=shows_all) for text in (first, second))
    found = differences(left, right)
    lines = [f"{mark} {run.name} ({run.run_id}), {run.status}" for mark, run in (("-", left), ("+", right))]
    for topic, values in found.items():
        lines += [
            "",
            topic,
            *(f"  {name:<34} {a or 'none'} -> {b or 'none'}" for name, (a, b) in values.items()),
        ] * bool(values)
    if not any(found.values()):
        lines += ["", "no difference"]
    return Answer({"runs": [_facts(left), _facts(right)], "differences": found}, lines)


def _facts(run: RunFacts) -> dict[str, str]:
    return {"run_id": run.run_id, "name": run.name, "status": run.status}
