"""What the caller's program defines, and how it travels to other processes: by value, with the job that needs it."""
