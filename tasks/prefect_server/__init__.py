"""The Prefect API of flows, and a local server if none is configured."""
