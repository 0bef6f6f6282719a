"""Calls of the distribute coordinator in this process."""

from __future__ import annotations

from psflow import CoordinatorMode, ParameterServerStrategy, get_current_worker_context, run_distribute_coordinator

STRATEGY = ParameterServerStrategy()


def context_of(mode=CoordinatorMode.INDEPENDENT_WORKER, strategy=STRATEGY, **options):
    """Return the context of one call, and what the look at it returned."""
    found = []
    look = options.pop("look", lambda context: None)
    run_distribute_coordinator(
        lambda own: found.append((get_current_worker_context(), look(get_current_worker_context()))),
        strategy,
        mode=mode,
        **options,
    )
    [(context, seen)] = found
    return context, seen
