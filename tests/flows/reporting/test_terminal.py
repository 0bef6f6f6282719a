"""The line at the bottom of a terminal, among log lines."""

from __future__ import annotations

import io
import logging

import pytest
from prefect.logging.handlers import PrefectConsoleHandler

from psflow.flows.reporting.progress import TerminalLine, not_on_terminals


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=[Terminal, io.StringIO])
def stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Where the root logger's handler writes: a terminal, or not."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = request.param()
    handler = PrefectConsoleHandler(stream)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [handler])
    return stream


def test_line_stays_below_what_is_logged(stream: io.StringIO) -> None:
    logger = logging.getLogger("t")
    with TerminalLine() as line:
        line.show("step 1")
        logger.warning("something happened")
        line.show("step 2 " + 200 * "x")
        logger.warning("not here", extra=not_on_terminals)
        is_terminal = line.is_shown
    logger.warning("afterwards", extra=not_on_terminals)
    told = stream.getvalue()
    assert is_terminal == isinstance(stream, Terminal)
    if is_terminal:
        assert told.index("step 1") < told.index("something happened") < told.rindex("step 1") < told.index("step 2")
        assert 200 * "x" not in told
        assert "not here" not in told
        assert told.endswith("afterwards\n")
    else:
        assert told == "something happened\nnot here\nafterwards\n"
