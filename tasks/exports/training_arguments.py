"""Arguments of a training from Python, refused where they are given if they are of another kind."""

from __future__ import annotations

from typing import Any

from distributed import Client

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.export_bundle import check_writer
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.specs.arguments import ArgumentFaults, with_article

__all__ = ["EXPECTED_EVAL_SPEC", "check_cluster", "checked_eval_specs"]

EXPECTED_EVAL_SPEC = "an EvalSpec, or a sequence of them"


def checked_eval_specs(
    who: str, estimator: Any, train_spec: Any, eval_spec: Any, writer: Any, on_event: Any, *, may_be_none: bool
) -> tuple[EvalSpec, ...]:
    """Return the EvalSpecs, if the arguments are what `who` takes; `may_be_none` says whether eval_spec may be None.

    Raises
    ------
    UsageError
        If one of them is not; an ArgumentTypeError if it is of another kind.
    """
    faults = ArgumentFaults(f"{who}: ")
    for name, given, kind in (("estimator", estimator, Estimator), ("train_spec", train_spec, TrainSpec)):
        if not isinstance(given, kind):
            faults.add_type(name, with_article(kind.__name__), given)
    specs: tuple[EvalSpec, ...] = ()
    if isinstance(eval_spec, EvalSpec):
        specs = (eval_spec,)
    elif eval_spec is None and not may_be_none:
        faults.add_type("eval_spec", EXPECTED_EVAL_SPEC, None)
    else:
        specs = faults.items("eval_spec", eval_spec, EvalSpec, "EvalSpec", may_be_empty=False)
    check_writer(faults, writer)
    if on_event is not None:
        faults.callable("on_event", on_event)
    faults.raise_any()
    return specs


def check_cluster(
    who: str,
    client: Any,
    num_ps: Any,
    num_workers: Any,
    max_restarts: Any,
    min_workers: Any,
    probe_timeout_secs: Any,
    *,
    may_be_none: bool,
) -> None:
    """Refuse what is no Dask cluster, or no number of roles, restarts or seconds.

    `may_be_none` says whether there may be no client; `min_workers` may be None.

    Raises
    ------
    UsageError
        If one of them is wrong.
    """
    faults = ArgumentFaults(f"{who}: ")
    if not isinstance(client, Client) and not (client is None and may_be_none):
        faults.add_type("client", "a distributed.Client" + (" or None" if may_be_none else ""), client)
    numbers = [("num_ps", num_ps, 1), ("num_workers", num_workers, 0), ("max_restarts", max_restarts, 0)]
    if min_workers is not None:
        numbers.append(("min_workers", min_workers, 0))
    for name, given, least in numbers:
        if not isinstance(given, int) or isinstance(given, bool):
            faults.add_type(name, "an int", given)
        elif given < least:
            faults.add(f"{who}: {name} should be {least} or more, got {given}")
    faults.number("probe_timeout_secs", probe_timeout_secs, above_zero=True)
    faults.raise_any()
    if min_workers is not None and min_workers > num_workers:
        raise UsageError((f"{who}: min_workers should be at most num_workers, {num_workers}, got {min_workers}",))
