"""Exports: writing one, finding those of a model_dir, registering them in MLflow."""
