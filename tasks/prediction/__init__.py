"""Batch prediction: predicts an input with a model, partition by partition."""
