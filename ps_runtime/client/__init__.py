"""How a role speaks to the ps: links that come back, and one client for each purpose."""
