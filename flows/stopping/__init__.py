"""How a flow is asked to stop: signals, and cancellation in Prefect."""
