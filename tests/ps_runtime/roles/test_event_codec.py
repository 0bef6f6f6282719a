"""Events as plain data: every type survives the way, and what is no event is refused in words."""

from __future__ import annotations

import json
import math
import pickle
import re
from dataclasses import dataclass
from typing import Any, get_args

import pytest

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.roles import event_codec
from psflow.ps_runtime.roles.event_codec import MAX_CHARS, MAX_METRICS, decode_event, encode_event
from psflow.ps_runtime.roles.events import (
    Checkpoint,
    Evaluation,
    Event,
    Export,
    FirstStep,
    LogMessage,
    Metrics,
    PsListening,
    Restored,
    RoleEnded,
    RoleLeaving,
    RoleLost,
    RoleStarted,
    SummaryFile,
    TrainingLoss,
    WorkersMissing,
)
from psflow.ps_runtime.transport.listeners import Address

SENT: dict[str, Any] = {"role": "worker-12", "incarnation": 65536, "number": 3, "time": 1795338240.5}
EVENTS: list[Event] = [
    RoleStarted("ada", **SENT),
    PsListening(Address("10.0.0.1", 4711, None, "b"), **SENT),
    Restored(300, 0.5, "s3://bucket/step_00000300", **SENT),
    Restored(0, 0.5, **SENT),
    FirstStep(**SENT),
    TrainingLoss(0, -0.25, **SENT),
    TrainingLoss(9, math.inf, is_last=True, **SENT),
    Metrics(2**63 - 1, {"loss": 0.25, "norm": math.inf, "rate": -1e300}, **SENT),
    SummaryFile(300, "summaries/layers/w.json", "e30=", **SENT),
    Checkpoint(300, "s3://bucket/step_00000300", 0.01, 0.5, **SENT),
    Checkpoint(0, "c", **SENT),
    Evaluation(300, {"loss": -math.inf}, 1795338240.25, "held_out", 1.5, **SENT),
    Evaluation(300, {}, 0.0, **SENT),
    Export("best", 300, 2, "/m/export/best/2", True, {"accuracy": 0.5}, **SENT),
    LogMessage(30, "mine", "x" * MAX_CHARS, **SENT),
    RoleLeaving(**SENT),
    RoleEnded(**SENT),
    RoleLost("its Dask worker tcp://h:1 was lost", **SENT),
    WorkersMissing(1, 2, **SENT),
]
METRICS = encode_event(Metrics(300, {"loss": 0.5}, **SENT))[1]
SUMMARY = encode_event(SummaryFile(300, "summaries/w.json", "e30=", **SENT))[1]
EXPORT = encode_event(Export("best", 300, 2, "p", True, {}, **SENT))[1]
LISTENING = encode_event(PsListening(Address("h", 1, None, ""), **SENT))[1]


def test_every_type_is_tried_here() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_the_way(event: Event) -> None:
    data = encode_event(event)
    assert decode_event(json.loads(json.dumps(data))) == event
    assert pickle.loads(pickle.dumps(event)) == event


def test_nan_arrives_as_nan() -> None:
    event = decode_event(encode_event(Metrics(1, {"loss": math.nan}, **SENT)))
    assert isinstance(event, Metrics)
    assert math.isnan(event.values["loss"])


def test_numbers_arrive_as_floats() -> None:
    event = decode_event(("Metrics", {**METRICS, "values": {"steps": 3}, "time": 7}))
    assert isinstance(event, Metrics)
    assert (type(event.values["steps"]), type(event.time)) == (float, float)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (3, "a role broke the protocol: expected an event, its type and its fields, got 3"),
        (METRICS, "expected an event, its type and its fields, got {'role': 'worker-12'"),
        (("Metrics", METRICS, 1), "expected an event, its type and its fields, got ('Metrics', {"),
        (("Metrics", [1]), "expected an event, its type and its fields, got ('Metrics', [1])"),
        (("Metric", METRICS), "worker-12 broke the protocol: expected an event of a known type, got 'Metric'; did you"),
        ((["Metrics"], METRICS), "known type, got ['Metrics']"),
        (("RoleEvent", METRICS), "known type, got 'RoleEvent'"),
        (("Metrics", {"role": "ps-0"}), "'number' is missing; 'time' is missing; 'step' is missing; 'values' is"),
        (
            ("Metrics", {**METRICS, "x": 1}),
            "worker-12 broke the protocol: in the event Metrics, unknown field 'x'; install",
        ),
        (("Metrics", {**METRICS, 5: 1}), "unknown field 5"),
        (
            ("Metrics", {**METRICS, "role": "ps-00"}),
            "'role' should be the name of a role, such as worker-1, got 'ps-00'",
        ),
        (("Metrics", {**METRICS, "role": "ps-1234567"}), "'role' should be"),
        (("Metrics", {**METRICS, "role": "boss-1"}), "'role' should be"),
        (("Metrics", {**METRICS, "role": ""}), "'role' should be"),
        (("Metrics", {**METRICS, "role": 1}), "'role' should be"),
        (("Metrics", {**METRICS, "number": 0}), "'number' should be an integer from 1 to 2**63 - 1, got 0"),
        (("Metrics", {**METRICS, "number": True}), "'number' should be an integer"),
        (("Metrics", {**METRICS, "step": -1}), "'step' should be an integer from 0 to 2**63 - 1, got -1"),
        (("Metrics", {**METRICS, "step": 2**63}), "'step' should be"),
        (("Metrics", {**METRICS, "step": 1.0}), "'step' should be"),
        (("Metrics", {**METRICS, "time": -1.0}), "'time' should be a finite number of seconds from 0, got -1.0"),
        (("Metrics", {**METRICS, "time": math.inf}), "'time' should be"),
        (("Metrics", {**METRICS, "time": math.nan}), "'time' should be"),
        (("Metrics", {**METRICS, "time": None}), "'time' should be"),
        (
            ("Metrics", {**METRICS, "values": [1.0]}),
            f"'values' should be at most {MAX_METRICS} numbers by name, got [1.0]",
        ),
        (("Metrics", {**METRICS, "values": {"loss": "nan"}}), "'values' should be"),
        (("Metrics", {**METRICS, "values": {"loss": True}}), "'values' should be"),
        (("Metrics", {**METRICS, "values": {"loss": 2**63}}), "'values' should be"),
        (("Metrics", {**METRICS, "values": {1: 0.5}}), "'values' should be"),
        (("Metrics", {**METRICS, "values": {"x" * (MAX_CHARS + 1): 0.5}}), "'values' should be"),
        (
            ("Metrics", {**METRICS, "values": dict.fromkeys(map(str, range(MAX_METRICS + 1)), 0.5)}),
            "'values' should be",
        ),
        *(
            (("SummaryFile", {**SUMMARY, "file": file}), "'file' should be a file below summaries/, got")
            for file in ("w.json", "plots/w.png", "summaries/", "summaries/../w.png", "/summaries/w", "summaries/a//b")
        ),
        (
            ("SummaryFile", {**SUMMARY, "content_base64": "e30"}),
            f"'content_base64' should be at most {MAX_CHARS} characters of base64, got 'e30'",
        ),
        (("SummaryFile", {**SUMMARY, "content_base64": "e30=" * (MAX_CHARS // 4 + 1)}), "'content_base64' should be"),
        (("Export", {**EXPORT, "is_best": 1}), "'is_best' should be true or false, got 1"),
        (("Export", {**EXPORT, "path": None}), f"'path' should be a text of at most {MAX_CHARS} characters, got None"),
        (("Export", {**EXPORT, "path": "x" * (MAX_CHARS + 1)}), "'path' should be"),
        (
            ("PsListening", {**LISTENING, "address": "h:1"}),
            "'address' should be an address (address of a ps: 'host' is missing;",
        ),
        (
            ("PsListening", {**LISTENING, "address": {**LISTENING["address"], "tcp_port": 0}}),
            "'tcp_port' should be from 1 to 65535",
        ),
    ],
)
def test_what_is_no_event_is_refused(data: object, words: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(words)) as caught:
        decode_event(data)
    assert len(str(caught.value)) < 500
    assert str(caught.value).endswith("; install the same version of psflow on all Dask workers and in the flow")


def test_a_field_of_a_type_that_nothing_reads_is_an_error_at_import() -> None:
    @dataclass(frozen=True, slots=True)
    class Blob(RoleStarted):
        content: bytes

    with pytest.raises(KeyError, match="bytes"):
        event_codec._readers(Blob)
