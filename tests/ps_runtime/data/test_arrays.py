import numpy as np
import pytest

from psflow.ps_runtime.data.arrays import as_bytes, plain_arrays
from psflow.ps_runtime.errors import InputError


def test_any_memory_layout_becomes_contiguous_and_native() -> None:
    matrix = np.arange(12, dtype=">f4").reshape(3, 4).T[:, ::-1]
    plain, _ = plain_arrays(matrix, None)
    assert isinstance(plain, np.ndarray)
    assert plain.flags.c_contiguous
    assert plain.dtype == np.dtype("=f4")
    assert plain.dtype.isnative
    np.testing.assert_array_equal(plain, matrix)


def test_an_array_in_that_form_is_not_copied() -> None:
    array = np.zeros((2, 3), np.float32)
    plain, _ = plain_arrays(array, None)
    assert np.shares_memory(plain, array)


def test_scalars_are_one_row() -> None:
    features, labels = plain_arrays({"x": 1.5}, 2)
    assert features["x"].shape == (1,)
    assert labels.shape == (1,)


def test_all_faults_come_in_one_error() -> None:
    with pytest.raises(InputError) as caught:
        plain_arrays({"a": [object()], "b": [[1], [2, 3]], "c": [], "d": [1, 2], 5: [1]}, [1, 2, 3])
    text = str(caught.value)
    assert "features['a'] has dtype object, <object object" in text
    assert "features['b'] is not an array" in text
    assert "features['c'] is empty, its shape is [0]" in text
    assert "features has the key 5: expected a str" in text
    assert "features['d'] has 2" in text
    assert "labels has 3" in text
    assert len(caught.value.faults) == 5


@pytest.mark.parametrize("dtype", [[("a", "f4")], "V3", "M8[s]"])
def test_only_plain_dtypes_pass(dtype: object) -> None:
    with pytest.raises(InputError, match=r"features has dtype .* expected numbers, booleans or fixed-length strings"):
        plain_arrays(np.empty(2, dtype), None)


def test_an_empty_dict_is_refused() -> None:
    with pytest.raises(InputError, match="labels is an empty dict: expected at least one array"):
        plain_arrays([1], {})


def test_bytes_of_an_array_are_a_view() -> None:
    array = np.array([[1, 2], [3, 4]], "<u2")
    assert as_bytes(array).tolist() == [1, 0, 2, 0, 3, 0, 4, 0]
    assert np.shares_memory(as_bytes(array), array)
