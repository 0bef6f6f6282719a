"""Map-style data sets of torch, of which replicas share the batches, and what collate functions return."""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils.rnn import pad_sequence  # noqa: E402
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset  # noqa: E402

import psflow  # noqa: E402
from psflow.ps_runtime.data.input_pipeline import open_input  # noqa: E402
from psflow.ps_runtime.data.splittable import SplittableInput  # noqa: E402
from psflow.ps_runtime.errors import InputError  # noqa: E402
from psflow.ps_runtime.estimator.attempt import Attempt  # noqa: E402
from psflow.ps_runtime.model.training import TrainSpec  # noqa: E402
from psflow.ps_runtime.shipping.pickles import pickled  # noqa: E402
from psflow.ps_runtime.specs.roles import Role, RoleId  # noqa: E402
from psflow.torch import TorchEstimator, batches  # noqa: E402

ROWS = TensorDataset(torch.arange(14.0).reshape(7, 2), torch.arange(7))


class Texts(torch.utils.data.Dataset[Any]):
    """Texts of different lengths as dicts of a tensor, an array, a number and a text."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        return {"ids": torch.arange(index + 1), "scale": np.float32(index), "row": index, "name": f"n{index}"}


class Broken(Texts):
    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise OSError("no such image")
        return 1.0, index


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield torch.ones(2), torch.ones(2)


def padded(examples: list[Any]) -> Any:
    ids = pad_sequence([example["ids"] for example in examples], batch_first=True, padding_value=-1)
    return [{"ids": ids, "name": [example["name"] for example in examples]}, torch.tensor([e["row"] for e in examples])]


def read(data: Any) -> list[tuple[Any, Any]]:
    """Return all batches of an epoch, as a model gets them."""
    opened = open_input(lambda: data)
    assert isinstance(opened, SplittableInput)
    return [opened.read(0, number, number + 1) for number in range(opened.num_records)]


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (ROWS, [*range(7)]),
        (Subset(ROWS, [5, 1, 2]), [5, 1, 2]),
        (ConcatDataset([ROWS, Subset(ROWS, [4])]), [*range(7), 4]),
        ([(torch.tensor([2.0 * row, 2.0 * row + 1]), row) for row in range(3)], [0, 1, 2]),
    ],
)
def test_each_example_is_in_one_batch_of_an_epoch(dataset: Any, expected: list[int]) -> None:
    found = read(batches(dataset, 2))
    assert np.concatenate([labels for _, labels in found]).tolist() == expected
    assert np.concatenate([features for features, _ in found])[:, 0].tolist() == [2.0 * row for row in expected]
    assert {(features.dtype.str, labels.dtype.str) for features, labels in found} == {("<f4", "<i8")}
    orders = [np.concatenate([y for _, y in read(batches(dataset, 2, shuffle_seed=s))]).tolist() for s in (1, 1, 2, 3)]
    assert all(sorted(order) == sorted(expected) for order in orders)
    assert orders[0] == orders[1]
    assert len(read(batches(dataset, 2, drop_last=True))) == len(expected) // 2


def test_epochs_have_orders_of_their_own() -> None:
    opened = open_input(lambda: batches(ROWS, 7, shuffle_seed=1).repeat())
    assert isinstance(opened, SplittableInput)
    first, second = (opened.read(epoch, 0, 1)[1].tolist() for epoch in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second) == [*range(7)]
    assert opened.num_epochs is None


def test_examples_by_name_and_a_collate_function_that_pads() -> None:
    (features, labels), *_ = read(batches(Texts(), 3, collate_fn=padded))
    assert features["ids"].tolist() == [[0, -1, -1], [0, 1, -1], [0, 1, 2]]
    assert (features["name"].tolist(), labels.tolist()) == (["n0", "n1", "n2"], [0, 1, 2])
    [(features, labels), *_] = read(batches(Subset(Texts(), [2, 2]), 2))
    assert {name: values.tolist() for name, values in features.items()} == {
        "ids": [[0, 1, 2]] * 2,
        "scale": [2.0, 2.0],
        "row": [2, 2],
        "name": ["n2", "n2"],
    }
    assert labels is None


@pytest.mark.parametrize(
    ("dataset", "fault"),
    [
        (Broken(), r"Broken\.__getitem__ raised OSError for example 3 at .*test_map_style.py:\d+: no such image"),
        (Subset(Broken(), [1, 3]), r"Broken\.__getitem__ raised OSError for example 1 at .*test_map_style.py:\d+: no"),
        (
            Texts(),
            "default_collate raised RuntimeError for example 0 to example 4 .* equal size.*; example 1 is the first "
            "that does not fit; return tensors of one shape or numbers from __getitem__, or give a collate_fn",
        ),
        ([(1.0, 0), (1.0, None)], "NoneType.*; example 1 is the first that does not fit; return tensors"),
        ([(1.0, 2.0, 3.0)], r"batch 0 \(example 0 to example 0\) .* got a tuple of 3"),
        ([((torch.ones(2), torch.ones(2)), 1)], "features is a list of 2 arrays: .* give each a name, in a dict"),
    ],
)
def test_a_fault_in_the_data_names_the_example(dataset: Any, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        read(batches(dataset, 5))


@pytest.mark.parametrize(
    ("dataset", "arguments", "fault"),
    [
        (Subset(ROWS, []), {}, "the Subset has 0 examples: expected at least 1$"),
        (ROWS, {"batch_size": 8, "drop_last": True}, "has 7 examples: expected at least 8, or drop_last=False"),
        (Endless(), {}, "expects a map-style data set, .* got Endless; for other data, yield batches"),
        (3, {}, "expects a map-style data set, .* got int"),
        (ROWS, {"batch_size": 0}, "batch_size is 0: expected an int >= 1"),
        (ROWS, {"shuffle_seed": True}, "shuffle_seed is True: expected an int >= 0, or None not to shuffle"),
        (ROWS, {"drop_last": "no"}, "drop_last of batches is 'no': expected True or False"),
        (ROWS, {"collate_fn": 3}, "batches expects a function, got int"),
    ],
)
def test_arguments_that_are_refused(dataset: Any, arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        batches(dataset, **arguments)


@pytest.mark.parametrize(
    ("returned", "fault"),
    [
        (ROWS, r"returned a Dataset of torch without batches: return psflow\.torch\.batches\(dataset, batch_size\)"),
        (
            DataLoader(ROWS, 3),
            r"returned a DataLoader .*: return psflow\.torch\.batches\(dataset, 3\) .* shuffle_seed=1",
        ),
        (DataLoader(ROWS, batch_size=None), r"psflow\.torch\.batches\(dataset, batch_size\)"),
        (DataLoader(Endless()), "returned a DataLoader .*: yield its batches .* from a generator"),
        (iter(DataLoader(ROWS, 3)), r"returned a loop over a DataLoader .* ps-0 .*torch\.batches\(dataset, 3\)"),
        ((pair for pair in DataLoader(ROWS, 3)), r"returned a loop over a DataLoader .*batches\(dataset, 3\)"),
        (Endless(), "returned an IterableDataset .*: yield its batches .* from a generator"),
        ([torch.ones(2), torch.ones(2)], "returned list of other things than tuples"),
    ],
)
def test_what_an_input_fn_returns_instead_is_refused_with_what_to_return(returned: Any, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        open_input(lambda: returned)


def named(examples: list[Any]) -> Any:
    """Return a batch as collate functions of Hugging Face do: a mapping that is no dict, with the labels in it."""
    ids = pad_sequence([example["ids"] for example in examples], batch_first=True, padding_value=-1)
    return UserDict({"ids": ids, "labels": torch.tensor([example["row"] for example in examples])})


def test_labels_are_taken_out_of_a_batch() -> None:
    [(features, labels), _] = read(batches(Texts(), 3, collate_fn=named, label="labels"))
    assert list(features) == ["ids"]
    assert labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("collate_fn", "label", "fault"),
    [
        (named, "label", r"label is 'label', which a batch lacks; did you mean 'labels'\?"),
        (padded, "labels", r"label is 'labels', but a batch is a list, expected a mapping"),
        (named, 3, r"batches: label is 3, expected the name of the labels"),
    ],
)
def test_labels_that_a_batch_lacks(collate_fn: Any, label: Any, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        read(batches(Texts(), 3, collate_fn=collate_fn, label=label))


# Batches of tensors


X, Y = torch.arange(4.0), torch.arange(4)


@pytest.mark.parametrize(
    "returned",
    [(X, Y), iter([(X, Y)]), iter([[X, Y]]), [[X, Y]], [[{"x": X}, Y]], ({"x": X}, Y), iter([({"x": X}, Y)])],
)
def test_tensors_are_arrays_without_a_copy(returned: Any) -> None:
    opened = open_input(lambda: returned)
    features, labels = opened.read(0, 0, 4) if isinstance(opened, SplittableInput) else next(opened)
    x = features["x"] if isinstance(features, dict) else features
    assert (x.dtype.str, labels.dtype.str) == ("<f4", "<i8")
    assert (x.__array_interface__["data"][0], labels.__array_interface__["data"][0]) == (X.data_ptr(), Y.data_ptr())


@pytest.mark.parametrize(
    ("tensor", "fault"),
    [
        (torch.ones(2, requires_grad=True), r"features is a tensor that requires a gradient, .* pass its \.detach\(\)"),
        (torch.ones(2, dtype=torch.bfloat16), r"features is a torch.bfloat16 tensor, .* as with \.float\(\)"),
        (torch.ones(2, device="meta"), r"features is a tensor on the device meta: pass its \.cpu\(\)"),
        (torch.eye(2).to_sparse(), r"features is a tensor with layout torch.sparse_coo: pass its \.to_dense\(\)"),
    ],
)
def test_tensors_that_numpy_cannot_share_are_refused_with_what_to_do(tensor: Any, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        open_input(lambda: tensor)
    with pytest.raises(InputError, match=f"batch 0 of input_fn .*{fault}"):
        next(open_input(lambda: iter([(tensor, Y)])))  # type: ignore[call-overload]


def test_arrays_are_read_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    monkeypatch.delitem(sys.modules, "torch.utils.data")
    opened = open_input(lambda: iter([({"x": [1.0]}, [2])]))
    assert [(f["x"].tolist(), y.tolist()) for f, y in opened] == [([1.0], [2])]  # type: ignore[call-overload, index]


# Jobs


def line() -> Any:
    return torch.nn.Linear(2, 1)


def test_a_ps_gets_no_data(tmp_path: Path) -> None:
    data = TensorDataset(torch.rand(20_000, 2), torch.rand(20_000))
    estimator = TorchEstimator(line, psflow.RegressionHead(), model_dir=str(tmp_path))
    spec = TrainSpec(lambda: batches(data, 100, shuffle_seed=1), 2)
    with Attempt(estimator, spec, None, num_ps=2, num_workers=2) as attempt:
        job = attempt.job()
        assert [job.runs_program(RoleId(role, 0)) for role in (Role.PS, Role.CHIEF, Role.WORKER)] == [False, True, True]
        assert len(pickled(job, "the job")) > 20_000 * 12
        assert len(pickled(job.without_program(), "the job")) < 20_000


def test_a_module_is_trained_evaluated_and_predicts(tmp_path: Path) -> None:
    x = torch.rand(60, 2)
    data = TensorDataset(x, x.sum(dim=1))
    estimator = TorchEstimator(line, psflow.RegressionHead(), psflow.GradientDescent(0.5), str(tmp_path))
    estimator.train(lambda: batches(data, 20, shuffle_seed=1).repeat(), max_steps=200)
    assert estimator.evaluate(lambda: batches(data, 20).repeat())["loss"] < 1e-3
    predictions = [found["predictions"].item() for found in estimator.predict(lambda: batches(data, 7))]
    assert np.abs(predictions - x.sum(dim=1).numpy()).max() < 0.1
