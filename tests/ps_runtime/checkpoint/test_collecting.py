from __future__ import annotations

import threading
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint import pins
from psflow.ps_runtime.checkpoint.pins import STALE_SECS
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import CheckpointError, StorageError

FOR_EVER = 10_000.0


def test_the_newest_stay(store: CheckpointStore, clock: Any, toy: Any) -> None:
    for step in range(1, 6):
        toy.save(store, step)
    assert store.collect_garbage(None, FOR_EVER, clock.now) == []
    assert store.collect_garbage(0, FOR_EVER, clock.now) == []
    assert store.collect_garbage(3, FOR_EVER, clock.now) == [1, 2]
    assert store.collect_garbage(1, FOR_EVER, clock.now) == [3, 4]
    assert store.collect_garbage(1, FOR_EVER, clock.now) == []
    assert store.steps() == [5]
    assert store.files.names("checkpoints") == ["step_00000005"]


def test_what_is_protected_stays_whatever_its_age(store: CheckpointStore, clock: Any, toy: Any) -> None:
    for step in range(1, 6):
        toy.save(store, step)
    assert store.collect_garbage(1, FOR_EVER, clock.now, protected={2, 4, 7}) == [1, 3]
    assert store.steps() == [2, 4, 5]


def test_one_of_each_period_stays_for_good_over_restarts(url: str, clock: Any, toy: Any) -> None:
    """Saved every 20 minutes, one an hour kept: those at 1 h, 2 h, 3 h after the first; and the two newest."""
    for step in range(11):
        store = CheckpointStore(url, clock)
        toy.save(store, step)
        store.collect_garbage(2, 1.0, clock.now)
        clock.now += 1200
    assert CheckpointStore(url, clock).steps() == [3, 6, 9, 10]


def test_what_is_pinned_stays_and_goes_when_it_is_let_go(
    store: CheckpointStore, clock: Any, toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2, 3):
        toy.save(store, step)
    other = CheckpointStore(store.files.url, clock)
    removed = []
    remove = store.files.remove

    def noted(name: str) -> None:
        removed.append(name)
        remove(name)

    monkeypatch.setattr(store.files, "remove", noted)
    with other.pin(1, "evaluator-0 on ../host") as manifest:
        assert manifest.step == 1
        assert store.collect_garbage(1, FOR_EVER, clock.now) == [2]
        assert store.steps() == [1, 3]
        assert removed == ["checkpoints/step_00000002/manifest.json"], (
            "a pinned one is not even taken back for a moment"
        )
    assert store.files.names("pins") == []
    assert store.collect_garbage(1, FOR_EVER, clock.now) == [1]


def test_two_pins_of_one_step_are_two(store: CheckpointStore, clock: Any, toy: Any) -> None:
    toy.save(store, 1)
    toy.save(store, 2)
    with store.pin(1, "a"):
        with store.pin(1, "a"):
            pass
        assert store.collect_garbage(1, FOR_EVER, clock.now) == []


def test_a_stale_pin_holds_nothing(store: CheckpointStore, clock: Any, toy: Any) -> None:
    toy.save(store, 1)
    toy.save(store, 2)
    with store.pin(1, "dead"):
        clock.now += STALE_SECS
        assert store.collect_garbage(1, FOR_EVER, clock.now) == []
        clock.now += 1
        assert store.collect_garbage(1, FOR_EVER, clock.now) == [1]
        assert store.files.names("pins") == []


def test_a_renewed_pin_holds_on(store: CheckpointStore, clock: Any, toy: Any) -> None:
    for step in (1, 2, 3):
        toy.save(store, step)
    with store.pin(1, "slow"), store.pin(2, "slow"):
        for _ in range(3):
            clock.now += STALE_SECS
            store._pins.renew()
        assert len(store.files.names("pins")) == 2
        assert store.collect_garbage(1, FOR_EVER, clock.now) == []
    assert store.files.names("pins") == []
    assert store.collect_garbage(1, FOR_EVER, clock.now) == [1, 2]


def test_pins_are_renewed_as_long_as_one_is_held(
    store: CheckpointStore, toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = threading.Event()
    monkeypatch.setattr(pins, "RENEW_SECS", 0.001)
    monkeypatch.setattr(store._pins, "renew", renewed.set)
    toy.save(store, 1)
    before = threading.active_count()
    with store.pin(1, "slow"):
        with store.pin(1, "fast"):
            pass
        renewed.clear()
        assert renewed.wait(200)
        renewer = next(thread for thread in threading.enumerate() if thread.name == "psflow-pins")
    renewer.join(200)
    assert threading.active_count() == before


def test_a_pin_that_cannot_be_renewed_stays(
    store: CheckpointStore, clock: Any, toy: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    toy.save(store, 1)

    def refuse(name: str) -> None:
        raise OSError(28, "No space left on device")

    with store.pin(1, "slow"):
        before = store.files.names("pins")
        monkeypatch.setattr(store.files, "mark", refuse)
        clock.now += 10
        store._pins.renew()
        assert store.files.names("pins") == before
    assert store.files.names("pins") == []
    assert caplog.messages == ["cannot renew the pin of checkpoint 1, trying again: [Errno 28] No space left on device"]


def test_pinning_what_is_gone_says_so_and_leaves_no_pin(store: CheckpointStore) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint of step 4"), store.pin(4, "late"):
        pass
    assert store.files.names("pins") == []


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied"),
        OSError(30, "Read-only file system"),
        OSError(28, "No space left"),
        StorageError("pins", "Read-only file system", 0),
    ],
)
def test_a_checkpoint_is_read_without_a_pin_where_nothing_can_be_written(
    store: CheckpointStore, toy: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any, error: Exception
) -> None:
    toy.save(store, 1)

    def refuse(name: str) -> None:
        raise error

    monkeypatch.setattr(store.files, "mark", refuse)
    with CheckpointReader.pinned(store, 1, "estimator") as reader:
        assert reader.variable("bias").tolist() == [1, 2, 3]
    assert caplog.messages == [
        f"estimator reads checkpoint 1 without a pin, and a training job may remove it at the same time: {error}"
    ]


def test_an_error_of_the_reader_is_not_taken_for_one_of_the_pin(store: CheckpointStore, toy: Any) -> None:
    toy.save(store, 1)
    with pytest.raises(OSError, match="its own"), store.pin(1, "reader"):
        raise OSError("its own")
    assert store.files.names("pins") == []


def test_reading_writes_nothing_where_checkpoints_live(tmp_path: Any, toy: Any) -> None:
    store = CheckpointStore(str(tmp_path))
    toy.save(store, 1)
    before = [(p, p.stat().st_mtime_ns) for p in sorted((tmp_path / "checkpoints").rglob("*"))]
    with CheckpointReader.pinned(store, 1, "evaluator-0") as reader:
        reader.variable("kernel")
        assert [(p, p.stat().st_mtime_ns) for p in sorted((tmp_path / "checkpoints").rglob("*"))] == before
    assert [(p, p.stat().st_mtime_ns) for p in sorted((tmp_path / "checkpoints").rglob("*"))] == before


@pytest.mark.parametrize("moment", range(4))
def test_a_reader_that_comes_while_the_collector_works(
    store: CheckpointStore, clock: Any, toy: Any, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """At every moment between the collector's calls: the pin holds the whole checkpoint, or the reader is refused."""
    toy.save(store, 1)
    toy.save(store, 2)
    reader = CheckpointStore(store.files.url, clock)
    pin = reader.pin(1, "reader")
    outcome = []

    def come() -> None:
        try:
            pin.__enter__()
            outcome.append("pinned")
        except CheckpointError:
            outcome.append("refused")

    moments = iter(range(9))

    def before(call: Any) -> Any:
        def called(*args: Any) -> Any:
            if next(moments) == moment:
                come()
            return call(*args)

        return called

    # The collector: looks at the pins, removes the manifest, looks at the pins, removes the files.
    monkeypatch.setattr(store._pins, "steps", before(store._pins.steps))
    monkeypatch.setattr(store.files, "remove", before(store.files.remove))
    monkeypatch.setattr(store.files, "remove_tree", before(store.files.remove_tree))
    removed = store.collect_garbage(1, FOR_EVER, clock.now)
    assert (outcome, removed) == {
        0: (["pinned"], []),
        1: (["pinned"], []),  # it has read the manifest; the collector puts it back
        2: (["refused"], [1]),
        3: (["refused"], [1]),
    }[moment]
    if outcome == ["pinned"]:
        whole = CheckpointReader(reader, 1)
        assert whole.variable("kernel").shape == (5, 3)
        pin.__exit__(None, None, None)


def test_a_pin_that_comes_just_before_the_second_look_brings_the_manifest_back(
    store: CheckpointStore, clock: Any, toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.save(store, 1)
    toy.save(store, 2)
    remove = store.files.remove

    def remove_then_mark(name: str) -> None:
        remove(name)
        store.files.mark(f"pins/step_00000001.at_{int(clock.now)}.reader.00")

    monkeypatch.setattr(store.files, "remove", remove_then_mark)
    assert store.collect_garbage(1, FOR_EVER, clock.now) == []
    assert CheckpointStore(store.files.url).steps() == [1, 2]
    assert CheckpointReader(store, 1).variable("bias").tolist() == [1, 2, 3]


def test_leftovers_that_a_reader_still_reads_are_not_discarded(store: CheckpointStore, clock: Any, toy: Any) -> None:
    toy.save(store, 1)
    with store.pin(1, "reader"):
        store.files.remove("checkpoints/step_00000001/manifest.json")
        assert store.discard_uncommitted() == []
    assert store.discard_uncommitted() == [1]
