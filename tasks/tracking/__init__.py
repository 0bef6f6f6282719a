"""Tracking in MLflow: one writer per job, in the process of the flow."""

from tasks.tracking.models import BestModel
from tasks.tracking.store import prepare_store
from tasks.tracking.tracker import DatasetInfo, Tracker

__all__ = ["BestModel", "DatasetInfo", "Tracker", "prepare_store"]
