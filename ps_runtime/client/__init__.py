"""Connects roles to the ps: clients of shards, which reconnect, and one client for each purpose."""
