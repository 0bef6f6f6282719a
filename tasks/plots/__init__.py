"""Plots as images: learning curves, and what an exported classifier says of a data set."""
