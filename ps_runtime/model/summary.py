"""Summaries, as ``summary.scalar("accuracy", value)`` inside a model_fn."""

from psflow.ps_runtime.model.scope import scalar_summary as scalar

__all__ = ["scalar"]
