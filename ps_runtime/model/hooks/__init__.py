"""Hooks: user code around each step."""
