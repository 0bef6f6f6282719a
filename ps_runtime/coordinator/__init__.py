"""The distribute coordinator: who calls `worker_fn`, and as which task."""
