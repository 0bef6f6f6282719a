"""The servers that ``psflow up`` starts in the background: which are up, starting them, stopping them.

`found` is what other commands ask; the modules `starting` and `stopping` beside it are the verbs.
"""

from psflow.tasks.local_servers.record import Servers, found

__all__ = ["Servers", "found"]
