"""Configuration keys of each flow: pydantic models, parsing of files and flags, display."""
