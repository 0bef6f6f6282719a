"""Tracking in MLflow: one writer per job, in the process of the flow."""

from psflow.tasks.tracking.models import BestModel
from psflow.tasks.tracking.store import prepare_store
from psflow.tasks.tracking.tracker import DatasetInfo, Tracker

__all__ = ["BestModel", "DatasetInfo", "Tracker", "prepare_store"]
