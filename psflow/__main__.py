"""Runs the command line: ``python -m psflow`` is ``psflow``."""

from psflow.flows.cli import main

if __name__ == "__main__":
    main()
