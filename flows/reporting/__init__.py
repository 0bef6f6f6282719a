"""Reports of a job to the user, while it runs and afterwards."""
