"""Evaluation of old checkpoints: what a Dask worker does, who waits for it, and what is known already."""
