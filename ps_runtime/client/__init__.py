"""How a role speaks to the ps: clients of shards, which come back, and one client for each purpose."""
