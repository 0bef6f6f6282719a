"""Starting and stopping the servers of ``psflow up`` and ``psflow down``."""
