"""``python -m flows`` is the command ``psflow``."""

from flows.cli import main

if __name__ == "__main__":
    main()
