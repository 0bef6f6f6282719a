"""Estimators: a model_fn and what one does with it."""
