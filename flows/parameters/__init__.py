"""The keys of each flow: pydantic models, how they are read from files and flags, and how they are shown."""
