"""How a flow begins, waits its turn, is stopped, and ends."""
