"""Implements the distribute coordinator: calls `worker_fn` as the tasks of a cluster."""
