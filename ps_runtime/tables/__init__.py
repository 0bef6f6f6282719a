"""Sparse tables: the rows that one shard holds, first values, duplicate ids, bounds."""
