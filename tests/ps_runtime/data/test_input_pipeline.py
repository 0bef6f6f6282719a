import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.data.batch_check import check_batch
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.input_pipeline import InputContext, open_input
from psflow.ps_runtime.errors import InputError

SCHEMA = Dataset([1]).schema()


def batches(*pairs: Any) -> Iterator[Any]:
    yield from pairs


def test_a_data_set_is_returned_as_it_is() -> None:
    data = Dataset([1, 2]).batch(2)
    assert open_input(lambda: data) is data


@pytest.mark.parametrize("mode", ["train", "eval", "infer", None])
@pytest.mark.parametrize("data", [Dataset([1, 2]), Dataset([1, 2]).shuffle(2, seed=1), Dataset([1, 2]).repeat(3)])
def test_a_data_set_without_a_batch_is_refused(data: Dataset, mode: Any) -> None:
    words = r"^input_fn .* returned a data set without a batch size; call its batch\(batch_size\)$"
    with pytest.raises(InputError, match=words):
        open_input(lambda: data, mode=mode)
    assert isinstance(open_input(lambda: data.batch(1), mode=mode), Dataset), "unless it is what is wanted"


def test_a_single_record_is_a_batch() -> None:
    assert isinstance(open_input(lambda: Dataset([1])), Dataset)


def test_a_tuple_of_arrays_is_a_data_set_of_one_batch() -> None:
    data = open_input(lambda: ({"x": np.arange(4)}, [1, 2, 3, 4]))
    assert isinstance(data, Dataset)
    assert (data.num_records, data.batch_size, data.num_epochs) == (4, 4, 1)


def test_features_alone_go_with_none() -> None:
    data = open_input(lambda: (np.arange(4), None))
    assert isinstance(data, Dataset)
    assert data.labels is None


def generator_function() -> Iterator[Any]:
    yield {"x": 1.0}, 2
    yield {"x": [3.0]}, [4]


@pytest.mark.parametrize(
    "input_fn",
    [
        generator_function,
        lambda: generator_function,
        lambda: generator_function(),
        lambda: [({"x": 1.0}, 2), ({"x": [3.0]}, [4])],
        lambda: iter([({"x": 1.0}, 2), ({"x": [3.0]}, [4])]),
    ],
)
def test_any_iterable_of_batches_becomes_an_iterator_of_arrays(input_fn: Any) -> None:
    result = open_input(input_fn)
    assert isinstance(result, Iterator)
    read = list(result)
    assert [(f["x"].tolist(), labels.tolist()) for f, labels in read] == [([1.0], [2]), ([3.0], [4])]


def test_batches_are_read_one_by_one() -> None:
    taken = []

    def endless() -> Iterator[Any]:
        while True:
            taken.append(1)
            yield [1], [2]

    result = open_input(endless)
    assert isinstance(result, Iterator)
    assert taken == []
    next(result)
    assert taken == [1]


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (None, "returned NoneType: expected a Dataset, a tuple"),
        (3, "returned int: expected a Dataset"),
        ("abc", "returned str: expected a Dataset"),
        ([[1], [2]], "returned list of other things than tuples: expected a Dataset"),
        (([1], [2], [3]), r"returned a tuple of 3 \(list, list, list\): .*as a list if there are several"),
        ((([1], [2]), ([1], [2])), r"returned a tuple of 2 \(tuple, tuple\): .*as a list if there are several"),
        (len, r"returned builtin_function_or_method \(len\): expected a Dataset"),
        (([1, 2], [1]), "expected the same number of rows in every array, but features has 2, labels has 1"),
    ],
)
def test_anything_else_is_refused_and_named(result: object, fault: str) -> None:
    def train_input() -> object:
        return result

    with pytest.raises(InputError, match=fault) as caught:
        open_input(train_input)
    assert "input_fn test_anything_else_is_refused_and_named.<locals>.train_input" in str(caught.value)


@pytest.mark.parametrize(
    ("batch", "fault"),
    [
        ([[1], [2]], r"batch 1 of input_fn .*: expected a tuple \(features, labels\), got list"),
        (([1], [2], [3]), "batch 1 of input_fn .* got a tuple of 3"),
        (([1, 2], [1]), "batch 1 of input_fn .*: expected the same number of rows"),
        (([object()], [1]), "batch 1 of input_fn .*: features has dtype object"),
    ],
)
def test_a_bad_batch_is_refused_with_its_number(batch: object, fault: str) -> None:
    result = open_input(lambda: batches(([1], [2]), batch))
    assert isinstance(result, Iterator)
    next(result)
    with pytest.raises(InputError, match=fault):
        next(result)


def test_an_error_of_the_generator_itself_passes_through() -> None:
    def broken() -> Iterator[Any]:
        yield [1], [2]
        raise OSError("disk")

    result = open_input(broken)
    assert isinstance(result, Iterator)
    next(result)
    with pytest.raises(OSError, match="disk"):
        next(result)


class TestArguments:
    context = InputContext(3, 1)

    def asked(self, function: Any, **offered: Any) -> Any:
        got: list[Any] = []
        open_input(functools.partial(function, got), self.context, **offered)
        return got

    def test_only_what_the_signature_names_is_passed(self) -> None:
        def input_fn(got: list[Any], mode: str, input_context: InputContext) -> Dataset:
            got += [mode, input_context]
            return Dataset([1])

        assert self.asked(input_fn, mode="train", params={"k": 1}) == ["train", self.context]

    @pytest.mark.parametrize(("mode", "expected"), [("train", None), ("eval", SCHEMA), ("infer", SCHEMA)])
    def test_in_training_there_is_no_schema_yet(self, mode: str, expected: Any) -> None:
        def input_fn(got: list[Any], input_schema: Any) -> Dataset:
            got.append(input_schema)
            return Dataset([1])

        assert self.asked(input_fn, mode=mode, enforcement=Enforcement(SCHEMA)) == [expected]
        with pytest.raises(InputError, match="shape"):
            open_input(lambda: Dataset([[1, 2]]), mode=mode, enforcement=Enforcement(SCHEMA))

    def test_nothing_is_passed_to_kwargs(self) -> None:
        def input_fn(got: list[Any], *args: Any, **kwargs: Any) -> Dataset:
            got += [args, kwargs]
            return Dataset([1])

        assert self.asked(input_fn, mode="train") == [(), {}]

    def test_a_default_stands_in_for_what_there_is_not(self) -> None:
        def input_fn(got: list[Any], params: Any, mode: str = "mine", size: int = 4) -> Dataset:
            got += [params, mode, size]
            return Dataset([1])

        assert self.asked(input_fn) == [None, "mine", 4]
        assert self.asked(input_fn, mode="train", params={"k": 1}) == [{"k": 1}, "train", 4]

    def test_what_a_partial_has_bound_stays_bound(self) -> None:
        def input_fn(got: list[Any], mode: str) -> Dataset:
            got.append(mode)
            return Dataset([1])

        assert self.asked(functools.partial(input_fn, mode="mine"), mode="train") == ["mine"]

    def test_a_method_can_be_an_input_fn(self) -> None:
        class RecordSource:
            def read(self, params: Any) -> Dataset:
                return Dataset(params["rows"]).batch(2)

        data = open_input(RecordSource().read, params={"rows": [1, 2]})
        assert isinstance(data, Dataset)
        assert data.num_records == 2

    def test_an_unknown_argument_is_refused(self) -> None:
        def input_fn(modes: str, other: int) -> Dataset:
            return Dataset([1])

        with pytest.raises(InputError) as caught:
            open_input(input_fn)
        first, second = caught.value.faults
        assert (
            "asks for 'modes': expected def input_fn(input_context, mode, params, config, input_schema), each by name"
            in first
        )
        assert first.endswith("; did you mean 'mode'?")
        assert "asks for 'other'" in second

    def test_an_argument_that_has_no_name_is_refused(self) -> None:
        def input_fn(mode: str, /) -> Dataset:
            return Dataset([1])

        words = r"asks for 'mode': expected def input_fn\(input_context, mode, params, config, input_schema\)"
        with pytest.raises(InputError, match=words):
            open_input(input_fn)


def test_an_input_fn_is_callable() -> None:
    with pytest.raises(InputError, match="expected an input_fn to call, got Dataset; give a function that returns it"):
        open_input(Dataset([1]))


def test_check_batch_names_the_place_in_each_fault() -> None:
    with pytest.raises(InputError) as caught:
        check_batch([], {"y": [object()]}, "row 5")
    assert [fault.split(":")[0] for fault in caught.value.faults] == ["row 5", "row 5"]


@pytest.mark.parametrize(("num", "index", "replicas"), [(0, 0, 1), (2, 2, 1), (2, -1, 1), (1, 0, 0)])
def test_a_context_is_checked(num: int, index: int, replicas: int) -> None:
    with pytest.raises(InputError, match=r"expected (input_pipeline_id in|num_replicas_in_sync >= 1)"):
        InputContext(num, index, replicas)
