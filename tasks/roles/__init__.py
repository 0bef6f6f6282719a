"""The roles of a job as Prefect task runs, and what they log."""
