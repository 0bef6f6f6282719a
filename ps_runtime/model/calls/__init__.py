"""Calls of a model_fn: its variables, its features, its gradients."""
