"""The data of the prediction benchmark: an exported network, a Parquet file of records, and the equivalent bare loop.

``python -m benchmarks.predicting RECORDS VARIABLES OUTPUT FIRST STEP`` predicts every n-th part of the records with
only numpy and pyarrow. It starts with a line on stdin, and reports when it is ready and when it is done.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from psflow import DNNClassifier, EvalSpec, Event, Export, FinalExporter, RunConfig, TrainSpec, train_and_evaluate
from psflow.ps_runtime.data.record_formats import ParquetInput
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.tasks.exports.writer import MlflowModelWriter
from psflow.tasks.prediction.parts import repeating

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NUM_COLUMNS", "export_network", "logits_of", "main", "predict_alone", "write_records"]

NUM_COLUMNS, NUM_UNITS, NUM_CLASSES = 20, 100, 10
GROUP_ROWS = 131_072
"""Of a row group: 10 MB."""
PART_GROUPS = 4
"""Row groups that one part of the bare loop has: about the bytes of a partition."""
BATCH_ROWS = 8192
LABEL = "label"


def write_records(path: Path, num_rows: int, *, with_labels: bool = False) -> None:
    """Write records of 20 numbers of float32, without compression, which would find nothing in them."""
    import pyarrow as pa
    from pyarrow import parquet

    random = np.random.default_rng(5)
    names = [f"x{i}" for i in range(NUM_COLUMNS)]
    schema = pa.schema([(name, pa.float32()) for name in names] + [(LABEL, pa.int64())] * with_labels)
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, num_rows, GROUP_ROWS):
            size = min(GROUP_ROWS, num_rows - start)
            columns: list[Any] = list(random.standard_normal((NUM_COLUMNS, size), np.float32))
            columns += [np.arange(size) % NUM_CLASSES] * with_labels
            writer.write_table(pa.table(columns, schema=schema))


def _training_input(path: str) -> RecordInput:
    return ParquetInput(path=path, label=LABEL, groups={"features": "numeric"}).read().batch(100).repeat(None)


def export_network(directory: Path) -> tuple[str, dict[str, NDArray[Any]]]:
    """Train a network 20-100-10 for a few steps; return the folder of its export, and its variables."""
    events: list[Event] = []
    records = directory / "train.parquet"
    directory.mkdir()
    write_records(records, 1000, with_labels=True)
    input_fn = partial(_training_input, str(records))
    network = DNNClassifier(
        hidden_units=[NUM_UNITS],
        n_classes=NUM_CLASSES,
        model_dir=str(directory / "model"),
        config=RunConfig(tf_random_seed=1),
    )
    train_and_evaluate(
        network,
        TrainSpec(input_fn, max_steps=10),
        EvalSpec(input_fn, steps=1, exporters=FinalExporter("final")),
        writer=MlflowModelWriter(),
        on_event=events.append,
    )
    [path] = [event.path for event in events if isinstance(event, Export)]
    return path, {name: network.get_variable_value(name) for name in network.get_variable_names()}


def predict_alone(records: Path, variables: Path, output: Path, first: int, step: int) -> int:
    """Predict the parts ``first, first + step, ...`` of Parquet files, and write each; return the number of rows."""
    import pyarrow as pa
    from pyarrow import parquet

    with np.load(variables) as stored:
        values = dict(stored)
    num_rows = 0
    parts = [(path, start) for path in sorted(records.iterdir()) for start in _starts(path)]
    with threadpool_limits(limits=1):
        for part in range(first, len(parts), step):
            path, start = parts[part]
            with parquet.ParquetFile(path) as file:
                groups = list(range(start, min(start + PART_GROUPS, file.num_row_groups)))
                table = pa.concat_tables([_table(_predicted(values, batch)) for batch in _batches(file, groups)])
            num_rows += table.num_rows
            parquet.write_table(table, output / f"part-{part:05d}.parquet", use_dictionary=repeating(table.schema))
    return num_rows


def _starts(path: Path) -> range:
    """Return the first row group of each part of a Parquet file."""
    from pyarrow import parquet

    return range(0, parquet.read_metadata(path).num_row_groups, PART_GROUPS)


def _batches(file: Any, groups: list[int]) -> Iterator[NDArray[np.float32]]:
    for batch in file.iter_batches(BATCH_ROWS, groups, use_threads=False):
        yield np.stack([column.to_numpy() for column in batch.columns], axis=1)


def logits_of(values: Mapping[str, NDArray[Any]], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the logits of the network with these variables, of shape (rows, NUM_CLASSES)."""
    hidden = np.maximum(rows @ values["dnn/hiddenlayer_0/kernel"] + values["dnn/hiddenlayer_0/bias"], 0)
    logits: NDArray[np.float32] = hidden @ values["dnn/logits/kernel"] + values["dnn/logits/bias"]
    return logits


def _predicted(values: Mapping[str, NDArray[Any]], rows: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    logits = logits_of(values, rows)
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return {"logits": logits, "probabilities": probabilities, "class_ids": logits.argmax(axis=1)}


def _table(predictions: Mapping[str, NDArray[Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.table(
        {
            name: pa.array(array)
            if array.ndim == 1
            else pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])
            for name, array in predictions.items()
        }
    )


def main(records: str, variables: str, output: str, first: str, step: str) -> None:
    """Predict alone, each time that a line on stdin names a folder below `output`."""
    import pyarrow.parquet  # noqa: F401  so that its import is no part of what is measured

    print("ready", flush=True)
    for line in sys.stdin:
        folder = Path(output, line.strip())
        print(predict_alone(Path(records), Path(variables), folder, int(first), int(step)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
