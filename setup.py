"""Refuses to build psflow from a checkout that lost its links; all else of the build is in ``pyproject.toml``."""

from pathlib import Path

from setuptools import setup

PACKAGE = Path(__file__).with_name("psflow")

for name in ("flows", "tasks", "ps_runtime"):
    if not (PACKAGE / name / "__init__.py").is_file():
        raise SystemExit(
            f"psflow/{name} does not lead to the folder {name}/: this checkout has no symbolic links, and what is "
            "built of it would be empty; clone it with git clone -c core.symlinks=true"
        )

setup()
