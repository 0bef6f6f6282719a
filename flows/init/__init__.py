"""``psflow init``: writes a first configuration for tabular files, each guess with its reason.

`sample` reads the first records, `label` and `columns` analyse columns and guess their use, `draft` combines the
guesses and writes them as YAML with comments, and `answer` answers the command.
"""
