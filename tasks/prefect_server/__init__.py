"""The Prefect API that flows talk to, and the local server where there is none."""
