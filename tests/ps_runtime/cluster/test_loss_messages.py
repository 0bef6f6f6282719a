"""Messages to a ps that is lost: nobody waits for them."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from psflow.ps_runtime.cluster.loss_messages import LossMessages, take_loss
from tests.limits import HANG_SECS


def test_a_message_to_a_ps_that_does_not_answer_is_given_up_at_the_end(loop: asyncio.AbstractEventLoop) -> None:
    sent: list[Any] = []
    is_given_up = threading.Event()

    async def run(*given: Any, **options: Any) -> None:
        sent.append((given, options["workers"]))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            is_given_up.set()

    client: Any = SimpleNamespace(loop=SimpleNamespace(asyncio_loop=loop), _run=run)
    messages = LossMessages(client, "t")
    messages.send("tcp://h:1", (1, 65536))  # returns, though nobody answers
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(HANG_SECS)
    assert sent == [((take_loss, "t", (1, 65536)), ["tcp://h:1"])]
    messages.close()
    assert is_given_up.wait(HANG_SECS)


def test_a_scheduler_that_is_lost_is_no_error_of_a_message() -> None:
    async def run(*given: Any, **options: Any) -> None:
        raise OSError("the scheduler is gone")

    client: Any = SimpleNamespace(_run=run)
    asyncio.run(LossMessages(client, "t")._send("tcp://h:1", (1, 65536)))
