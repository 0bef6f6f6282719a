"""MLflow tracking: one writer per job, in the process of the flow."""
