"""``python -m psflow`` is the command ``psflow``."""

from psflow.flows.cli import main

if __name__ == "__main__":
    main()
