"""The rows of sparse tables on one shard: initial values, duplicate ids, bounds."""
