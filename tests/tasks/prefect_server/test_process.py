from __future__ import annotations

import asyncio
import threading

import aiosqlite

from psflow.tasks.prefect_server.process import statements_in_place


async def thread_of_a_statement(check_same_thread: bool = False) -> int:
    async with aiosqlite.connect(":memory:", check_same_thread=check_same_thread) as connection:
        await connection.create_function("thread", 0, threading.get_ident)
        async with connection.execute("select thread()") as cursor:
            row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


def test_statements_run_in_place_for_the_time_of_the_block() -> None:
    assert asyncio.run(thread_of_a_statement()) != threading.get_ident()
    with statements_in_place():
        assert asyncio.run(thread_of_a_statement()) == threading.get_ident()
    assert asyncio.run(thread_of_a_statement()) != threading.get_ident()


def test_a_connection_that_knows_only_its_own_thread_keeps_it() -> None:
    with statements_in_place():
        assert asyncio.run(thread_of_a_statement(check_same_thread=True)) != threading.get_ident()
