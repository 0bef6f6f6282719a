"""Estimators: train, evaluate, predict and export a model_fn."""
