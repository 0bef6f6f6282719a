"""Estimators that bring their own model_fn."""
