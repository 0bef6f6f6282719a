"""The commands that look and change nothing."""
