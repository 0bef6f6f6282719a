"""What people see of a job, while it runs and afterwards."""
