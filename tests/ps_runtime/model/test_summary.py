"""Summaries that are files: their content, refusals, and their way to listeners."""

from __future__ import annotations

import json
import math
import struct
import zlib
from base64 import b64decode

import numpy as np
import pytest

import psflow
from psflow import summary
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.model.calls.scope import BuildScope
from psflow.ps_runtime.model.summary_files import MAX_BYTES, as_pixels


def recorded(record):
    with (scope := BuildScope(0, 1)):
        record()
    return {name + item.suffix: item.content(7) for name, item in scope.file_summaries.items()}


# Histograms


def test_a_histogram_counts_values_between_edges():
    [(file, content)] = recorded(lambda: summary.histogram("layers/w", [[0, 1], [1, 4]], buckets=4)).items()
    facts = json.loads(content)
    assert file == "layers/w.json"
    assert facts == {
        "step": 7,
        "num": 4,
        "num_non_finite": 0,
        "min": 0.0,
        "max": 4.0,
        "mean": 1.5,
        "std": pytest.approx(1.5),
        "counts": [1, 2, 0, 1],
        "edges": [0.0, 1.0, 2.0, 3.0, 4.0],
    }


HISTOGRAMS = [
    (3.5, 1, 0),
    ([], 0, 0),
    (np.ones((2, 3), np.int8), 6, 0),
    ([True, False], 2, 0),
    ([1.0, math.nan, -math.inf], 3, 2),
    ([math.nan], 1, 1),
    (np.float32([1e38, -1e38]), 2, 0),
]


@pytest.mark.parametrize(("values", "num", "num_non_finite"), HISTOGRAMS)
def test_a_histogram_of_any_numbers_counts_the_finite_ones(values, num, num_non_finite):
    facts = json.loads(recorded(lambda: summary.histogram("w", values))["w.json"])
    assert (facts["num"], facts["num_non_finite"], sum(facts["counts"])) == (num, num_non_finite, num - num_non_finite)
    assert len(facts["counts"]) + 1 == len(facts["edges"]) == 31


def test_a_histogram_keeps_the_values_of_its_call():
    values = np.zeros(3)
    with (scope := BuildScope(0, 1)):
        summary.histogram("w", values)
    values += 5
    assert json.loads(scope.file_summaries["w"].content(1))["max"] == 0.0


# Images


def chunks_of(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, found = 8, {}
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        data = png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size]) == (zlib.crc32(kind + data),)
        found[kind.decode()] = data
        at += 12 + size
    return found


@pytest.mark.parametrize(("channels", "color"), [(1, 0), (3, 2), (4, 6)])
def test_an_image_is_a_png_of_its_pixels(channels, color):
    pixels = np.random.default_rng(1).integers(0, 256, (1, 5, 4, channels), np.uint8)
    [(file, content)] = recorded(lambda: summary.image("x", pixels)).items()
    chunks = chunks_of(content)
    assert file == "x-0.png"
    assert struct.unpack(">IIBBBBB", chunks["IHDR"]) == (4, 5, 8, color, 0, 0, 0)
    rows = np.frombuffer(zlib.decompress(chunks["IDAT"]), np.uint8).reshape(5, 1 + 4 * channels)
    assert not rows[:, 0].any()
    assert (rows[:, 1:].reshape(pixels.shape[1:]) == pixels[0]).all()
    assert list(chunks) == ["IHDR", "tEXt", "IDAT", "IEND"]


@pytest.mark.parametrize(("batch", "max_outputs", "num"), [(5, 3, 3), (2, 3, 2), (5, 1, 1)])
def test_the_first_images_of_a_batch_are_kept(batch, max_outputs, num):
    found = recorded(lambda: summary.image("a/b", np.zeros((batch, 2, 2, 1)), max_outputs))
    assert list(found) == [f"a/b-{i}.png" for i in range(num)]


PIXELS = [
    (np.uint8([0, 7, 255]), [0, 7, 255]),
    ([0.0, 0.5, 1.0], [0, 128, 255]),
    ([0, 1, 2], [0, 128, 255]),
    ([0.0, 0.0, 0.0], [0, 0, 0]),
    ([-1.0, 0.0, 1.0], [0, 127, 254]),
    ([-1.0, 0.0, 4.0], [95, 127, 255]),
    ([-2.0, -1.0, -4.0], [64, 95, 0]),
    ([math.nan, math.inf, 2.0], [0, 0, 255]),
    ([True, False, True], [255, 0, 255]),
]


@pytest.mark.parametrize(("values", "shown"), PIXELS)
def test_numbers_become_pixels(values, shown):
    assert as_pixels(np.array(values)).tolist() == shown


def test_an_image_that_may_be_recorded_fits_an_event():
    noise = np.random.default_rng(1).integers(0, 256, (1, 1, MAX_BYTES // 4 - 1, 4), np.uint8)
    tall = np.random.default_rng(1).integers(0, 256, (1, MAX_BYTES // 3, 2, 1), np.uint8)
    for pixels in (noise, tall):
        [content] = recorded(lambda pixels=pixels: summary.image("x", pixels)).values()
        assert len(content) * 4 / 3 < 1 << 16


# Texts


@pytest.mark.parametrize(
    ("text", "shown"), [("one", "one"), (["a", "b"], "a\nb"), ("", ""), ([], ""), ("ä" * 24_000, "ä" * 24_000)]
)
def test_a_text_is_kept_below_its_step(text, shown):
    assert recorded(lambda: summary.text("notes", text)) == {"notes.md": f"<!-- step 7 -->\n{shown}\n".encode()}


# What is refused

WRONG = [
    (lambda: summary.histogram("w", ["a"]), r"summary.histogram\('w'\) takes numbers, got an array of <U1"),
    (lambda: summary.histogram("w", [None]), "takes numbers, got an array of object"),
    (lambda: summary.histogram("w", 1, 0), "takes buckets from 1 to 1000, got 0"),
    (lambda: summary.histogram("w", 1, 1001), "takes buckets from 1 to 1000, got 1001"),
    (lambda: summary.histogram("w", 1, 2.0), "takes buckets from 1 to 1000, got 2.0"),
    (lambda: summary.histogram("", 1), r"summary.histogram\(''\) takes a name of letters"),
    (lambda: summary.histogram("../w", 1), "takes a name of letters"),
    (lambda: summary.histogram("/w", 1), "takes a name of letters"),
    (lambda: summary.histogram("a//w", 1), "takes a name of letters"),
    (lambda: summary.histogram("w" * 201, 1), "of at most 200 characters"),
    (lambda: summary.histogram(3, 1), r"summary.histogram\(3\) takes a name"),
    (
        lambda: summary.image("x", np.zeros((2, 2, 1))),
        r"of shape \(batch, height, width, channels\), .*got float64\[2",
    ),
    (lambda: summary.image("x", np.zeros((1, 2, 2, 2))), r"with 1, 3 or 4 channels, got float64\[1, 2, 2, 2\]"),
    (lambda: summary.image("x", np.zeros((0, 2, 2, 1))), r"got float64\[0, 2, 2, 1\]"),
    (
        lambda: summary.image("x", np.zeros((1, 300, 300, 1))),
        "at most 48000 numbers, and 1 for each row, got 90300",
    ),
    (lambda: summary.image("x", np.zeros((1, 2, 2, 1)), 0), "takes max_outputs of at least 1, got 0"),
    (lambda: summary.text("t", [1]), r"summary.text\('t'\) takes a text or its lines, got \[1\]"),
    (lambda: summary.text("t", "x" * 48_001), "takes a text of at most 48000 bytes, got 48001"),
]


@pytest.mark.parametrize(("record", "said"), WRONG)
def test_what_is_no_summary_is_refused(record, said):
    with pytest.raises(ModelFnError, match=said):
        recorded(record)


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (lambda: summary.histogram("w", 1), "histogram"),
        (lambda: summary.image("x", np.zeros((1, 1, 1, 1))), "image"),
        (lambda: summary.text("t", ""), "text"),
    ],
)
def test_summaries_are_recorded_inside_a_model_fn(record, name):
    with pytest.raises(ModelFnError, match=rf"summary.{name} works only inside a model_fn that psflow calls"):
        record()


# The way out


@pytest.mark.parametrize("by_hand", [True, False])
def test_the_chief_sends_them_with_its_summaries(tmp_path, monkeypatch, by_hand):
    def model_fn(features, labels, mode):
        w = psflow.get_variable("w", (2,))
        loss = ((features["x"] * w) ** 2).mean()
        summary.histogram("w", w)
        summary.text("notes", "hello")
        op = psflow.GradientDescent(learning_rate=0.1)
        op = op.apply_gradients({"w": np.zeros(2, np.float32)}) if by_hand else op.minimize(loss)
        return psflow.EstimatorSpec(mode, None, loss, op)

    def examples():
        return psflow.Dataset({"x": np.ones((4, 2), np.float32)}, np.zeros(4, np.float32)).batch(1)

    config = psflow.RunConfig(tf_random_seed=1, save_summary_steps=2)
    estimator = psflow.Estimator(model_fn, str(tmp_path / "model"), config)
    heard = []
    monkeypatch.setattr(Attempt, "log_event", staticmethod(heard.append))
    estimator.train(examples)
    events = [event for event in heard if isinstance(event, psflow.SummaryFile)]
    assert [(e.step, e.file) for e in events] == [
        (step, file) for step in (2, 4) for file in ("summaries/w.json", "summaries/notes.md")
    ]
    assert json.loads(b64decode(events[0].content_base64))["num"] == 2
    assert "content" not in repr(events[0])
