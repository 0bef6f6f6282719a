"""What a role tells of itself."""

import json
import threading

import numpy as np

from psflow.ps_runtime.roles.context import RoleContext, peak_rss_mb
from psflow.ps_runtime.roles.event_codec import encode_event
from psflow.ps_runtime.roles.events import FirstStep
from psflow.ps_runtime.specs.roles import Role, RoleId


def context_with_events():
    events = []
    return RoleContext(RoleId(Role.WORKER, 2), 4, lambda: None, events.append), events


def test_events_are_numbered_in_the_order_in_which_they_are_sent():
    context, events = context_with_events()
    threads = [threading.Thread(target=lambda: [context.emit(FirstStep()) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.number for event in events] == list(range(1, 201))
    assert {event.role for event in events} == {"worker-2"}


def test_metrics_are_plain_numbers():
    context, events = context_with_events()
    context.emit_metrics(np.int64(5), {"loss": np.float32(0.5), "steps": 3})
    [event] = events
    assert (event.role, event.step, event.values) == ("worker-2", 5, {"loss": 0.5, "steps": 3.0})
    assert json.dumps(encode_event(event)).endswith('"step": 5, "values": {"loss": 0.5, "steps": 3.0}}]')


def test_a_report_says_that_all_is_well_and_what_it_took():
    context, _ = context_with_events()
    report = context.report("tcp", {"pushes": 3})
    assert report["exit"] == "finished"
    assert report["transport"] == "tcp"
    assert report["statistics"] == {"pushes": 3}
    assert 1 < report["rss_mb"] <= peak_rss_mb()
