"""How the flow of a command starts in this process: its Prefect server, and what is prepared before it."""
