"""Stops a flow on signals and on cancellation in Prefect."""
