"""The commands of ``psflow``, a module each: what they take on the command line, and whom they ask.

Prefect, MLflow and Dask are imported inside them, so that help is quick.
"""

import time

__all__ = ["BEGAN_AT"]

BEGAN_AT = time.monotonic()
"""When this process began, but for the first imports."""
