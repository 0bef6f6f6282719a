"""Reads environment variables and YAML; no other package does."""
