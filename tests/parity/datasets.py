"""Data sets that are compared with tf.data of TensorFlow 2.15. Run, it writes the elements that TensorFlow yields.

Run from the root of the checkout, in an environment with tensorflow-cpu==2.15.1 and numpy:
``PATH/TO/THAT/python tests/parity/datasets.py``. Imported it needs neither TensorFlow nor psflow.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ELEMENTS_FILE = Path(__file__).with_name("datasets.json")
MAX_ELEMENTS = 30
"""Of those of an endless data set."""

X = np.arange(14, dtype=np.float32).reshape(7, 2)
Y = np.arange(7)


def rows(data: Any) -> Any:
    """Return a data set of features by name and labels."""
    return data.from_tensor_slices(({"x": X, "n": 10 * Y}, Y))


def numbers(data: Any, count: int) -> Any:
    """Return a stream of int64 from 0."""
    return data.from_generator(lambda: iter(range(count)))


def tens(data: Any) -> Callable[[Any], Any]:
    """Return a function that makes a data set of a number ``i``: ``i % 3`` times ``10 * i``."""
    return lambda i: data.range(6).take(i % 3).map(lambda j: 10 * i + j)


CASES: dict[str, Callable[[Any], Any]] = {
    "an array": lambda d: d.from_tensor_slices(X),
    "features and labels": rows,
    "a tuple of three": lambda d: d.from_tensor_slices((X, Y, -Y)),
    "a nest": lambda d: d.from_tensor_slices(((X, {"y": Y}), -Y)),
    "from_tensors": lambda d: d.from_tensors((X, Y)),
    "range": lambda d: d.range(5),
    "range of nothing": lambda d: d.range(0),
    "an array without rows": lambda d: d.from_tensor_slices(X[:0]).batch(2),
    "range with a start and a step": lambda d: d.range(9, 2, -3),
    "from_generator": lambda d: numbers(d, 4),
    "batch": lambda d: rows(d).batch(3),
    "batch, drop_remainder": lambda d: rows(d).batch(3, drop_remainder=True),
    "batch of a stream, drop_remainder": lambda d: numbers(d, 7).batch(3, drop_remainder=True),
    "batch of batches": lambda d: d.range(8).map(lambda i: i).batch(2).batch(3),
    "repeat before batch": lambda d: rows(d).repeat(2).batch(3),
    "repeat after batch": lambda d: rows(d).batch(3).repeat(2),
    "repeat for ever before batch": lambda d: d.range(5).repeat().batch(3),
    "repeat for ever after batch": lambda d: d.range(5).batch(3).repeat(),
    "repeat twice": lambda d: d.range(2).repeat(2).repeat(3),
    "repeat of a stream before batch": lambda d: numbers(d, 5).repeat(2).batch(3),
    "repeat for ever of a stream": lambda d: numbers(d, 5).repeat().batch(3),
    "repeat of nothing for ever": lambda d: d.range(3).skip(5).repeat(),
    "repeat of a stream of nothing for ever": lambda d: numbers(d, 0).repeat(),
    "repeat for ever, drop_remainder": lambda d: d.range(5).repeat().batch(3, drop_remainder=True),
    "map of records": lambda d: rows(d).map(lambda f, y: (f["x"] * 2, y + f["n"])).batch(4),
    "map of batches": lambda d: rows(d).batch(4).map(lambda f, y: (f["x"] - f["x"][0], y[::-1])),
    "map after repeat": lambda d: d.range(3).repeat(2).map(lambda i: i * i).batch(4),
    "map of a dict": lambda d: d.from_tensor_slices({"x": X}).map(lambda f: {"z": f["x"][0]}),
    "map of a nest": lambda d: d.from_tensor_slices(((X, Y), -Y)).map(lambda a, y: (a[0] + 1, {"y": (a[1], y)})),
    "map in threads": lambda d: d.range(20).map(lambda i: 3 * i, num_parallel_calls=2).batch(6),
    "map of a stream in threads": lambda d: numbers(d, 20).map(lambda i: 3 * i, num_parallel_calls=2).batch(6),
    "take records": lambda d: rows(d).take(2).batch(4),
    "take batches": lambda d: rows(d).batch(2).take(2),
    "take more than there are": lambda d: d.range(3).take(10**12),
    "take none": lambda d: d.range(3).take(0),
    "take over epochs": lambda d: d.range(3).repeat().take(8).batch(3),
    "take of a stream": lambda d: numbers(d, 9).take(4).batch(3),
    "skip records": lambda d: rows(d).skip(5).batch(4),
    "skip batches": lambda d: rows(d).batch(2).skip(2),
    "skip over epochs": lambda d: d.range(3).repeat(3).skip(4),
    "skip more than there are": lambda d: d.range(3).skip(4),
    "skip of a stream": lambda d: numbers(d, 9).skip(4).batch(3),
    "skip and take": lambda d: d.range(9).skip(2).take(5).skip(1).repeat(2).batch(3),
    "filter": lambda d: d.range(10).filter(lambda i: i % 3 != 0).batch(4),
    "filter of pairs": lambda d: rows(d).filter(lambda f, y: y > 4),
    "filter of batches": lambda d: d.range(10).batch(3).filter(lambda b: b[0] != 3),
    "filter before repeat": lambda d: d.range(5).filter(lambda i: i > 2).repeat(2).batch(3),
    "filter out all": lambda d: d.range(5).filter(lambda i: i > 9),
    "concatenate": lambda d: d.range(3).concatenate(d.range(7, 9)).repeat(2).batch(4),
    "concatenate a stream": lambda d: d.range(3).concatenate(numbers(d, 2)).batch(4),
    "concatenate to a stream": lambda d: numbers(d, 2).concatenate(d.range(3)).batch(4),
    "enumerate": lambda d: d.range(5, 8).repeat(2).enumerate(start=3).batch(4),
    "enumerate batches": lambda d: d.range(5).batch(2).enumerate(),
    "enumerate a stream": lambda d: numbers(d, 3).enumerate(5),
    "zip": lambda d: d.zip((d.range(3), rows(d))),
    "zip with an endless one": lambda d: d.zip((d.range(2).repeat(), d.range(10, 15))).batch(3),
    "zip endless ones": lambda d: d.zip((d.range(2).repeat(), d.range(3).repeat())).batch(4),
    "zip of three": lambda d: d.zip((d.range(3), d.range(3).map(lambda i: -i), d.range(9))),
    "zip with a stream": lambda d: d.zip((d.range(9), numbers(d, 4))).batch(3),
    "zip of batches": lambda d: d.zip((d.range(5).batch(2), d.range(5).map(lambda i: -i).batch(2))),
    "interleave": lambda d: d.range(1, 5).interleave(lambda i: d.range(4).map(lambda j: 10 * i + j), 2),
    "interleave in blocks": lambda d: d.range(5).interleave(lambda i: d.range(5).map(lambda j: 10 * i + j), 3, 2),
    "interleave of unequal ones": lambda d: d.range(9).interleave(tens(d), 4, 1).batch(4),
    "interleave of unequal ones in blocks": lambda d: d.range(9).interleave(tens(d), 3, 2),
    "interleave one at a time": lambda d: d.range(4).interleave(lambda i: d.range(i), 1),
    "interleave with places to spare": lambda d: d.range(3).interleave(lambda i: d.range(2).repeat(2), 100),
    "prefetch": lambda d: rows(d).batch(3).prefetch(2),
    "shuffle of one at a time": lambda d: d.range(6).shuffle(1, seed=3).repeat(2).batch(4),
    "shuffle of a stream of one at a time": lambda d: numbers(d, 6).shuffle(1, seed=3),
}
"""Each makes a data set of the class that it is given; the order of its elements is determined."""


def plain(element: Any) -> Any:
    """Return an element as JSON has it: a tuple as a list under its own key, for a list is an array."""
    if isinstance(element, tuple):
        return {"()": [plain(part) for part in element]}
    if isinstance(element, Mapping):
        return {name: plain(part) for name, part in element.items()}
    array = np.asarray(element)
    return {"dtype": str(array.dtype), "values": array.tolist()}


def elements(data_set: Any) -> list[Any]:
    """Return the first elements of a data set."""
    return [plain(element) for element in itertools.islice(data_set, MAX_ELEMENTS)]


def main() -> None:
    """Write the elements of TensorFlow."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    class Data(tf.data.Dataset):
        """With the signature of the one generator that is used."""

        @staticmethod
        def from_generator(generator: Any) -> Any:
            return tf.data.Dataset.from_generator(generator, output_signature=tf.TensorSpec((), tf.int64))

    found = {name: elements(make(Data).as_numpy_iterator()) for name, make in CASES.items()}
    ELEMENTS_FILE.write_text(json.dumps({"tensorflow": tf.__version__, "elements": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
