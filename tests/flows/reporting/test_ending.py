from __future__ import annotations

import logging

import pytest

from psflow.flows.reporting.watch import Ending
from psflow.ps_runtime.errors import StorageError


def test_the_first_error_is_raised_after_all_blocks(caplog: pytest.LogCaptureFixture) -> None:
    ending, entered = Ending(None), 0
    for error in (KeyboardInterrupt(), ValueError("second"), StorageError("f", "full", 0)):
        assert ending.is_well == (entered == 0)
        with ending:
            entered += 1
            raise error
    with pytest.raises(KeyboardInterrupt):
        ending.check()
    assert entered == 3
    told = [(record.levelno, bool(record.exc_info)) for record in caplog.records]
    assert told == [(logging.WARNING, True), (logging.WARNING, False)]
    assert caplog.records[0].getMessage() == "another error at the end of the job, ValueError: second"


def test_what_ended_the_job_comes_first() -> None:
    ending = Ending(ZeroDivisionError())
    assert not ending.is_well
    with ending:
        raise ValueError
    ending.check()


def test_an_interruption_comes_before_what_ended_the_job() -> None:
    ending = Ending(ZeroDivisionError())
    with ending:
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        ending.check()


def test_nothing_is_raised_where_all_is_well() -> None:
    ending = Ending(None)
    with ending:
        pass
    assert ending.is_well
    ending.check()
