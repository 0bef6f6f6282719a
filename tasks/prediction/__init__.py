"""Batch prediction: a model, an input, and partitions of it that are predicted one by one."""
