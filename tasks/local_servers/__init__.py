"""The servers that ``psflow up`` starts in the background: which are up, starting them, stopping them.

`found` is what other commands ask; `tasks.local_servers.starting` and `tasks.local_servers.stopping` are the verbs.
"""

from tasks.local_servers.record import Servers, found

__all__ = ["Servers", "found"]
