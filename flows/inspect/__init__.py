"""Commands that inspect servers, runs, configurations and disks."""
