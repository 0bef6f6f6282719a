"""Files that arrive, a batch for each run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from psflow.ps_runtime.data.npz_arrays import Npz
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.tasks.prediction import batches, worker
from psflow.tasks.prediction.batches import planned_batches
from psflow.tasks.prediction.inputs import PredictionInput, prediction_input
from psflow.tasks.prediction.model import ModelInfo
from psflow.tasks.prediction.options import PredictionOptions
from psflow.tasks.prediction.plan import PredictionPlan
from psflow.tasks.prediction.worker import predict_partition
from tests.tasks.prediction.scoring import Sums, info, trained


class Inbox:
    """A folder of input, an output, and what predicts."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model = info(trained(tmp_path))
        self.inbox, self.out = tmp_path / "in", tmp_path / "out"
        self.inbox.mkdir()
        self.asked: list[str] = []
        monkeypatch.setattr(worker, "_model", lambda path, uri: worker._Model(self.model, Sums(), 3))
        monkeypatch.setattr(batches, "found_model", self.found)

    @contextmanager
    def found(self, uri: str) -> Iterator[ModelInfo]:
        self.asked.append(uri)
        yield self.model

    def arrive(self, name: str, *numbers: int) -> None:
        (self.inbox / name).write_text("id,a,b\n" + "".join(f"{name},{n},1\n" for n in numbers))

    @property
    def source(self) -> PredictionInput:
        return prediction_input(str(self.inbox), Csv)

    def run(self, num_plans: int, num_parts: int = 99, **options: Any) -> list[PredictionPlan]:
        """Predict what there is to predict; stop, as if killed, after so many parts."""
        found = PredictionOptions(**options)
        with planned_batches(self.model, self.source, found, str(self.out)) as plans:
            assert len(plans) == num_plans
            for plan in plans:
                plan.begin()
                for part in plan.left():
                    if not num_parts:
                        return plans
                    num_parts -= 1
                    predict_partition(plan.work, part)
                    worker._rows.cache_clear()
                plan.complete()
        return plans

    def sums(self, batch: str) -> dict[str, list[float]]:
        table = pq.read_table(self.out / batch).to_pylist()
        return {name: [row["sum"] for row in table if row["id"] == name] for name in {row["id"] for row in table}}


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    return Inbox(tmp_path, monkeypatch)


def test_each_file_is_predicted_once_in_the_batch_of_its_run(inbox: Inbox) -> None:
    inbox.arrive("a.csv", 1, 2)
    inbox.arrive("b.csv", 3)
    inbox.run(1)
    inbox.run(0)
    inbox.arrive("aa.csv", 4)
    inbox.run(1)
    assert inbox.sums("batch-00000") == {"a.csv": [2, 3], "b.csv": [4]}
    assert inbox.sums("batch-00001") == {"aa.csv": [5]}
    assert all((inbox.out / name / "_SUCCESS").exists() for name in ("batch-00000", "batch-00001"))


def test_an_interrupted_batch_comes_first_with_its_own_files_model_and_options(inbox: Inbox) -> None:
    inbox.arrive("a.csv", 1)
    inbox.arrive("b.csv", 3)
    inbox.run(1, num_parts=1, output_format="parquet", predict_keys=("sum",))
    inbox.arrive("c.csv", 5)
    first, second = inbox.run(2, output_format="csv")
    assert inbox.asked == ["models:/m/3"]
    assert [prediction.name for prediction in first.columns.predictions] == ["sum"]
    assert inbox.sums("batch-00000") == {"a.csv": [2], "b.csv": [4]}
    assert [part.file for part in second.parts] == [str(inbox.inbox / "c.csv")]
    assert (inbox.out / "batch-00001/part-00000.csv").exists()


def test_a_batch_that_was_killed_before_it_began_is_begun_again(inbox: Inbox) -> None:
    (inbox.out / "batch-00000").mkdir(parents=True)
    (inbox.out / "batch-00000/_index").write_bytes(b"")
    inbox.arrive("a.csv", 1)
    inbox.run(1)
    assert inbox.sums("batch-00000") == {"a.csv": [2]}


def test_a_file_that_was_predicted_and_has_changed_is_refused(inbox: Inbox) -> None:
    inbox.arrive("a.csv", 1)
    inbox.run(1)
    inbox.arrive("a.csv", 1, 2)
    inbox.arrive("b.csv", 1)
    words = r"a\.csv was predicted in batch-00000 and has changed since: restore it, or give it another name"
    with pytest.raises(InputError, match=words):
        inbox.run(1)
    assert not (inbox.out / "batch-00001").exists()


def test_a_file_of_an_interrupted_batch_that_has_changed_is_refused(inbox: Inbox) -> None:
    inbox.arrive("a.csv", 1)
    inbox.run(1, num_parts=0)
    inbox.arrive("a.csv", 1, 2)
    with pytest.raises(InputError, match=r"a\.csv has changed since it was scanned"):
        inbox.run(1)


def test_an_output_with_something_else_is_refused(inbox: Inbox) -> None:
    inbox.arrive("a.csv", 1)
    inbox.out.mkdir()
    (inbox.out / "_job.json").write_text("{}")
    with pytest.raises(UsageError, match=r"holds _job\.json, which is not a batch; choose another folder for"):
        inbox.run(1)


def test_an_input_that_is_no_tabular_files_is_refused(inbox: Inbox) -> None:
    source = PredictionInput(Npz, "in.npz")
    with (
        pytest.raises(UsageError, match="new_files_only needs tabular files"),
        planned_batches(inbox.model, source, PredictionOptions(), str(inbox.out)),
    ):
        pass


def test_an_output_in_the_folder_of_the_input_is_refused(inbox: Inbox) -> None:
    inbox.arrive("a.csv", 1)
    inbox.out = inbox.inbox / "predictions"
    with pytest.raises(UsageError, match=r"in/predictions.* is inside the input .*in; choose a folder outside it"):
        inbox.run(1)
