"""Program in place of the one that records in MLflow, which takes seconds to start: writes what it gets to a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Write the lines of stdin to ``recorded.jsonl`` beside the model_dir; answer as if all was recorded."""
    lines = sys.stdin.readlines()
    Path(json.loads(lines[0])["model_dir"]).with_name("recorded.jsonl").write_text("".join(lines))
    print(json.dumps(["opened", "f00"]))
    print(json.dumps(["ended", "whole"]))


if __name__ == "__main__":
    main()
