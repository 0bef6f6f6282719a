"""Due times of runs by Prefect from our configuration: time zones, and both changes of the clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from prefect.server.schemas.schedules import CronSchedule, IntervalSchedule

from psflow.flows.parameters.stages import ScheduleParameters
from psflow.flows.planning.building import schedule_of

SPRING, AUTUMN = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
"""Noon before the nights in which Europe changes its clocks: the local hour of 2 is left out, or comes twice."""


def due(start: datetime, count: int, **schedule: Any) -> list[str]:
    """Return the first times in UTC, as day and time, at which runs of a configuration begin from `start` on."""
    wanted = schedule_of(ScheduleParameters(**schedule), {})
    known: CronSchedule | IntervalSchedule
    if wanted.cron is not None:
        known = CronSchedule(cron=wanted.cron, timezone=wanted.timezone)
    else:
        assert wanted.interval is not None
        known = IntervalSchedule(interval=wanted.interval, timezone=wanted.timezone, anchor_date=start)
    return [time.astimezone(UTC).strftime("%d %H:%M") for time in asyncio.run(known.get_dates(count, start=start))]


@pytest.mark.parametrize(
    ("start", "cron", "expected"),
    [
        (SPRING, "0 3 * * *", ["29 01:00", "30 01:00"]),
        (SPRING, "30 1 * * *", ["29 00:30", "29 23:30"]),
        (SPRING, "30 2 * * *", ["29 00:30", "30 00:30"]),  # there is no 2:30 that night: an hour earlier, once
        (AUTUMN, "0 3 * * *", ["25 02:00", "26 02:00"]),
        (AUTUMN, "30 2 * * *", ["25 00:30", "26 01:30"]),  # there are two: at the first
    ],
)
def test_a_daily_run_keeps_its_local_time_and_is_due_once_a_night(
    start: datetime, cron: str, expected: list[str]
) -> None:
    assert due(start, 2, cron=cron, timezone="Europe/Berlin") == expected


def test_an_hourly_run_in_local_time_leaves_out_the_hour_that_comes_twice() -> None:
    hours = due(AUTUMN, 16, cron="0 * * * *", timezone="Europe/Berlin")
    assert hours[12:] == ["25 00:00", "25 02:00", "25 03:00", "25 04:00"]
    assert due(SPRING, 16, cron="0 * * * *", timezone="Europe/Berlin")[12:] == [f"29 0{hour}:00" for hour in range(4)]


@pytest.mark.parametrize("start", [SPRING, AUTUMN])
def test_in_utc_and_by_interval_the_clocks_change_nothing(start: datetime) -> None:
    day = start.day + 1
    expected = [f"{start.day} {hour}:00" for hour in range(12, 24)] + [f"{day} {hour:02}:00" for hour in range(6)]
    assert due(start, 18, cron="0 * * * *") == expected
    assert due(start, 18, interval_secs=3600.0) == expected
    assert due(start, 2, cron="30 2 * * *") == [f"{day} 02:30", f"{day + 1} 02:30"]
