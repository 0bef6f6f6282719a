"""Hooks: what the user runs around each step."""
