"""What each flow can be told: pydantic models, how they are read from files and flags, and how they are shown."""
