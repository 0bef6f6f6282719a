"""Evaluation of old checkpoints: Dask tasks, their owner, and the record of results."""
