"""Writes exports, lists those of a model_dir, and registers them in MLflow."""
