"""From the schedule of a configuration to that of Prefect."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from prefect._vendor.croniter.croniter import CroniterBadDateError, croniter  # as CronSchedule does
from prefect.client.schemas.schedules import CronSchedule
from prefect.schedules import Cron, Interval, Schedule
from pydantic import ValidationError

from psflow.flows.parameters.stages import ScheduleParameters
from psflow.ps_runtime.config.files import Origin
from psflow.ps_runtime.errors import ConfigError

__all__ = ["schedule_of"]


def schedule_of(wanted: ScheduleParameters, origins: Mapping[str, Origin]) -> Schedule:
    """Return the schedule that is asked for, as Prefect takes it.

    Raises
    ------
    ConfigError
        If Prefect refuses the cron expression or the time zone, or the expression names no day there is.
    """
    if wanted.interval_secs is not None:
        return Interval(timedelta(seconds=wanted.interval_secs), timezone=wanted.timezone)
    try:
        CronSchedule(cron=str(wanted.cron), timezone=wanted.timezone)  # Cron itself does not look at the time zone
        croniter(wanted.cron).get_next()  # and neither looks whether it ever comes
        return Cron(str(wanted.cron), timezone=wanted.timezone)
    except ValidationError as error:
        faults = [(f"schedule.{'.'.join(map(str, fault['loc']))}", str(fault["msg"])) for fault in error.errors()]
    except CroniterBadDateError:
        faults = [("schedule.cron", f"{wanted.cron!r} names a day that never comes")]
    raise ConfigError(tuple(f"{origins.get(key, origins['schedule'])}: {key}: {reason}" for key, reason in faults))
