"""``psflow init``: a first configuration from tabular files, each guess with its reason.

`sample` reads the first records, `facts` counts what each column has, `label` and `columns` guess what becomes of it,
`draft` puts the guesses together, `text` writes them as YAML with comments, and `init` answers.
"""
