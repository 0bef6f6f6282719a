"""Canned Estimators, which bring their own model_fn."""
