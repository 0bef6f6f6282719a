"""Sphinx configuration: ``make docs`` builds this folder into ``docs/_build/html``."""

from __future__ import annotations

import inspect
import re
import tomllib
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx.util.docutils import SphinxDirective

import psflow

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "psflow"
author = copyright = "the psflow authors"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
highlight_language = "text"

# Links lead to pages and to source files, as on the code host; MyST copies the source files into the site
myst_heading_anchors = 4
MARKDOWN_ELSEWHERE = re.compile(r"\]\(((?:\.\./)+(?:README|tests/[\w/]+)\.md)(?:#[\w-]*)?\)")

autodoc_typehints = "none"  # the Parameters sections hold the types
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autosummary_generate = False  # each page of docs/reference holds all of its names
numpydoc_show_class_members = False  # autodoc shows them
default_role = "literal"  # docstrings quote names with single backticks

html_theme = "furo"
html_title = f"psflow {release}"


class Api(SphinxDirective):
    """Documents names of ``psflow``, one a line: a table of summaries, and then the docstrings."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the table and the entries of the names."""
        names = list(self.content)
        lines = [".. autosummary::", "   :nosignatures:", "", *(f"   psflow.{name}" for name in names), ""]
        for name in names:
            if inspect.isclass(attrgetter(name)(psflow)):
                lines += [f".. autoclass:: psflow.{name}", "   :members:", ""]
            else:
                lines += [f".. autofunction:: psflow.{name}", ""]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


def link_as_files(app: Sphinx, docname: str, text: list[str]) -> None:
    """Link Markdown outside this folder as a file: MyST takes it for a page that is missing."""
    text[0] = MARKDOWN_ELSEWHERE.sub(r"](<path:\1>)", text[0])


def setup(app: Sphinx) -> None:
    """Register the directive of the pages of docs/reference, and the links to Markdown elsewhere."""
    app.add_directive("api", Api)
    app.connect("source-read", link_as_files)
