"""Runs about a job, below the one that trains it."""

from __future__ import annotations

from mlflow import MlflowClient

from psflow.tasks.owners import JOB_ID, KIND, MODEL_DIR
from psflow.tasks.tracking.child_run import find_training_run, open_child_run
from psflow.tasks.tracking.tracker import Tracker

TAGS = {JOB_ID: "f00", MODEL_DIR: "/runs/digits", KIND: "train"}


def test_a_child_has_the_job_of_its_parent_and_is_never_taken_for_it(store: str) -> None:
    def train() -> str:
        tracker = Tracker.open(store, experiment="digits", run_name="digits", tags=TAGS)
        tracker.close()
        return tracker.run_id

    def evaluate(is_new: bool) -> str:
        parent = find_training_run(store, run_id)
        tracker = open_child_run(
            store,
            kind="evaluate",
            experiment="digits",
            model_dir="/runs/digits",
            parent=parent,
            run_name="evaluate digits",
            tags={},
            is_new=is_new,
        )
        tracker.close()
        return tracker.run_id

    run_id = train()
    children = [evaluate(is_new=False), evaluate(is_new=True)]
    client = MlflowClient(store, store)
    assert {client.get_run(child).data.tags[JOB_ID] for child in children} == {"f00"}
    assert len({run_id, *children}) == 3
    assert train() == run_id
