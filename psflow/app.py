"""Flags of programs ported with ``import psflow as tf``: those of absl, as in ``tf.app.flags``.

As there, the command line is parsed when a program first reads a flag. Dashes within a name may stand for underscores.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from absl import flags as absl_flags

__all__ = ["flags"]


class _Values:
    """The values of the flags."""

    def __getattr__(self, name: str) -> Any:
        """Return the value of a flag.

        Raises SystemExit, after a message, if the command line has an unknown flag or a wrong value, or asks for help.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        if not absl_flags.FLAGS.is_parsed():
            _parse(sys.argv)
        return getattr(absl_flags.FLAGS, name)


class _Flags:
    """The functions and classes of ``absl.flags``, and `FLAGS`, which parse the command line when they are read."""

    FLAGS: Final = _Values()

    def __getattr__(self, name: str) -> Any:
        """Return a name of ``absl.flags``."""
        return getattr(absl_flags, name)


flags: Final = _Flags()


def _parse(arguments: list[str]) -> None:
    program, *given = arguments
    if {"--help", "-h"} & set(given):
        print(absl_flags.FLAGS.main_module_help())
        sys.exit(0)
    try:
        absl_flags.FLAGS([program, *map(_as_defined, given)])
    except absl_flags.Error as error:
        sys.exit(f"{program}: {error}\n{absl_flags.FLAGS.main_module_help()}")


def _as_defined(argument: str) -> str:
    """Return an argument with underscores in the name of its flag, where that is how the flag is defined."""
    name, equals, value = argument.partition("=")
    defined = name.replace("-", "_").lstrip("_")
    return f"--{defined}{equals}{value}" if name.startswith("--") and defined in absl_flags.FLAGS else argument
