"""Functions for categorical columns, with the names, arguments and defaults of ``tf.feature_column``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ArgumentTypeError, UsageError
from psflow.ps_runtime.feature_columns.arguments import (
    STRING,
    check_categorical,
    check_integer,
    check_key,
    checked_dtype,
    checked_list,
)
from psflow.ps_runtime.feature_columns.kinds import (
    CategoricalColumn,
    CrossedColumn,
    HashBucketColumn,
    IdentityColumn,
    VocabularyColumn,
    WeightedColumn,
    leaves_of,
)
from psflow.ps_runtime.feature_columns.vocabulary_file import read_vocabulary

MAX_BUCKETS = 2**62
BUCKETS = "an integer from 1 to 2**62 - 1"


def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Sequence[str] | Sequence[int],
    dtype: Any = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> VocabularyColumn:
    """Map strings or integers to ids: their positions in a list.

    Parameters
    ----------
    key : str
        Name of the feature, ``(batch,)`` or ``(batch, n)``; ``""`` and -1 are missing values.
    vocabulary_list : sequence of str, or of int
        The values, each once; bytes are read as UTF-8.
    dtype : dtype, optional
        A string or an integer dtype; default: that of the list.
    default_value : int
        Id of values that are not in the list; if negative, they are left out.
    num_oov_buckets : int
        Number of further ids, after those of the list, for hashes of other values; not with a `default_value`.

    Raises
    ------
    UsageError, ArgumentTypeError
        If an argument is invalid.

    Examples
    --------
    >>> categorical_column_with_vocabulary_list("color", ["red", "green"], num_oov_buckets=1).num_buckets
    3
    """
    check_key(key)
    given = _as_values(checked_list(f"vocabulary_list of column {key!r}", vocabulary_list, 1), key)
    of_list = checked_dtype(given.dtype, key, "iuU")
    own = of_list if dtype is None else checked_dtype(dtype, key, "iuU")
    if (own == STRING) != (of_list == STRING):
        raise UsageError((f"dtype of column {key!r} is {own}, but vocabulary_list is of {of_list}",))
    vocabulary = tuple(map(str, given.tolist()))
    if len(set(vocabulary)) != len(vocabulary):
        twice = next(string for place, string in enumerate(vocabulary) if string in vocabulary[:place])
        raise UsageError((f"vocabulary_list of column {key!r} repeats {twice!r}, expected each value once",))
    return _vocabulary_column(key, vocabulary, own, default_value, num_oov_buckets)


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    dtype: Any = str,
    default_value: int | None = None,
    num_oov_buckets: int = 0,
    file_format: str | None = None,
) -> VocabularyColumn:
    """Map strings or integers to ids: their positions in a text file with one per line. Blocks: reads the file.

    Parameters
    ----------
    key : str
        Name of the feature; see `categorical_column_with_vocabulary_list`.
    vocabulary_file : str
        A path, or a URL that fsspec reads.
    vocabulary_size : int, optional
        Number of lines to read; default: all.
    dtype : dtype
        A string or an integer dtype.
    default_value, num_oov_buckets : int
        See `categorical_column_with_vocabulary_list`; None means -1.
    file_format : {"text"}, optional
        Other formats are not supported.

    Raises
    ------
    UsageError, ArgumentTypeError
        If an argument is invalid, or the file cannot be read.
    InputError
        If the file has fewer lines, repeats a line, or has one that is not an integer.
    """
    check_key(key)
    if not vocabulary_file:
        raise UsageError((f"vocabulary_file of column {key!r} is missing",))
    if file_format not in (None, "text") or (file_format is None and str(vocabulary_file).endswith("tfrecord.gz")):
        raise UsageError((f"vocabulary_file of column {key!r}: expected a text file with one string per line",))
    own = checked_dtype(dtype, key, "iuU")
    if vocabulary_size is not None:
        what = f"vocabulary_size of column {key!r}"
        check_integer(what, vocabulary_size, 1, MAX_BUCKETS, "an integer >= 1")
    vocabulary = tuple(read_vocabulary(vocabulary_file, -1 if vocabulary_size is None else int(vocabulary_size)))
    if not vocabulary:
        raise UsageError(
            (f"vocabulary_file of column {key!r}, {vocabulary_file}, is empty, expected one string per line",)
        )
    if own != STRING:
        vocabulary = tuple(_as_integers(vocabulary, vocabulary_file))
    if num_oov_buckets and default_value is not None:
        raise UsageError((f"column {key!r} has num_oov_buckets and default_value, expected one of them",))
    return _vocabulary_column(key, vocabulary, own, -1 if default_value is None else default_value, num_oov_buckets)


def categorical_column_with_identity(key: str, num_buckets: int, default_value: int | None = None) -> IdentityColumn:
    """Use integers as ids.

    Parameters
    ----------
    key : str
        Name of the feature, ``(batch,)`` or ``(batch, n)`` integers; -1 is a missing value.
    num_buckets : int
        Ids are in ``[0, num_buckets)``.
    default_value : int, optional
        Id of integers out of range. Default: negative ones are left out, those of `num_buckets` or more are an error.

    Raises
    ------
    UsageError, ArgumentTypeError
        If an argument is invalid.
    """
    check_key(key)
    _check_buckets("num_buckets", num_buckets, key)
    if default_value is not None:
        what = f"default_value of column {key!r}"
        check_integer(what, default_value, 0, num_buckets, f"an integer in [0, {num_buckets})")
    return IdentityColumn(key, int(num_buckets), None if default_value is None else int(default_value))


def categorical_column_with_hash_bucket(key: str, hash_bucket_size: int, dtype: Any = str) -> HashBucketColumn:
    """Map strings or integers to ids by a hash: see `psflow.ps_runtime.columns.hashing.hash_ids`.

    Parameters
    ----------
    key : str
        Name of the feature, ``(batch,)`` or ``(batch, n)``; ``""`` and -1 are missing values.
    hash_bucket_size : int
        Ids are in ``[0, hash_bucket_size)``.
    dtype : dtype
        A string or an integer dtype. Integers are hashed as their decimal text.

    Raises
    ------
    UsageError, ArgumentTypeError
        If an argument is invalid.
    """
    check_key(key)
    _check_buckets("hash_bucket_size", hash_bucket_size, key)
    return HashBucketColumn(key, int(hash_bucket_size), checked_dtype(dtype, key, "iuU"))


def weighted_categorical_column(
    categorical_column: CategoricalColumn, weight_feature_key: str, dtype: Any = np.float32
) -> WeightedColumn:
    """Give each id of a categorical column a weight.

    Parameters
    ----------
    categorical_column : categorical column
        The weighted column.
    weight_feature_key : str
        Name of the feature of the weights, a number for each value of the column.
    dtype : dtype
        The dtype of the weights, a float or an integer dtype.

    Raises
    ------
    UsageError, ArgumentTypeError
        If an argument is invalid.
    """
    check_categorical(categorical_column)
    check_key(weight_feature_key, "weight_feature_key")
    return WeightedColumn(categorical_column, weight_feature_key, checked_dtype(dtype, weight_feature_key, "fiu"))


def crossed_column(
    keys: Sequence[str | CategoricalColumn], hash_bucket_size: int, hash_key: int | None = None
) -> CrossedColumn:
    """Map the combinations of several features to ids by a hash.

    Parameters
    ----------
    keys : sequence of str or categorical column
        Two or more: names of features of strings or integers, each value of which counts, even ``""`` and -1; or
        categorical columns that are neither hashed nor weighted. Each combination of values is an id.
    hash_bucket_size : int
        Ids are in ``[0, hash_bucket_size)``.
    hash_key : int, optional
        Changes the hashes.

    Raises
    ------
    UsageError, ArgumentTypeError
        If an argument is invalid.
    """
    check_integer("hash_bucket_size of a cross", hash_bucket_size, 1, MAX_BUCKETS, BUCKETS)
    given = checked_list("keys of a cross", keys, 2)
    for key in given:
        if not isinstance(key, (str, *get_args(CategoricalColumn))):
            raise ArgumentTypeError(
                (f"keys of a cross have {key!r}, expected names of features and categorical columns",)
            )
    if hash_key is not None:
        check_integer("hash_key of a cross", hash_key, 0, 2**64, "an integer in [0, 2**64)")
    crossed = CrossedColumn(tuple(given), int(hash_bucket_size), None if hash_key is None else int(hash_key))
    for key in leaves_of(crossed):
        if isinstance(key, HashBucketColumn):
            fault = f"hashes {key.name!r} before it is crossed, so that more values share an id; use {key.key!r} itself"
            raise UsageError((f"the cross {crossed.name!r} {fault}",))
        if isinstance(key, WeightedColumn):
            raise UsageError((f"the cross {crossed.name!r} has {key.name!r}, whose weights a cross does not use",))
    return crossed


def _as_values(vocabulary_list: Any, key: str) -> NDArray[Any]:
    """Return a vocabulary as a one-dimensional array of text or integers."""
    of_objects = np.asarray(vocabulary_list, object)
    if of_objects.ndim != 1:
        shape = list(of_objects.shape)
        raise UsageError((f"vocabulary_list of column {key!r} has the shape {shape}, expected a list of values",))
    values = of_objects.tolist()
    try:
        texts = [value.decode() if isinstance(value, bytes) else value for value in values]
    except UnicodeDecodeError:
        fault = "bytes that are not UTF-8; decode the strings, and those of the feature"
        raise UsageError((f"vocabulary_list of column {key!r} has {fault}",)) from None
    kinds = {isinstance(value, str) for value in texts}
    if kinds == {True, False}:  # numpy would convert all of them to text
        unknown = next(value for value in texts if not isinstance(value, str))
        raise UsageError((f"vocabulary_list of column {key!r} has {unknown!r} among strings, expected only strings",))
    return np.array(texts)


def _vocabulary_column(
    key: str, vocabulary: tuple[str, ...], dtype: str, default: Any, num_oov: Any
) -> VocabularyColumn:
    check_integer(f"num_oov_buckets of column {key!r}", num_oov, 0, MAX_BUCKETS, "an integer >= 0")
    if num_oov and default != -1:
        raise UsageError((f"column {key!r} has num_oov_buckets and default_value, expected one of them",))
    below = f"an integer below {len(vocabulary)}"
    check_integer(f"default_value of column {key!r}", default, -(2**63), len(vocabulary), below)
    return VocabularyColumn(key, vocabulary, dtype, int(default), int(num_oov))


def _as_integers(vocabulary: Sequence[str], path: str) -> Iterator[str]:
    """Return integers as their shortest decimal text."""
    for line, string in enumerate(vocabulary, start=1):
        try:
            yield str(int(string))
        except ValueError:
            raise UsageError((f"vocabulary {path}: line {line} is {string!r}, expected an integer",)) from None


def _check_buckets(what: str, number: Any, key: str) -> None:
    if number is None:
        raise UsageError((f"{what} of column {key!r} is None, expected {BUCKETS}",))
    check_integer(f"{what} of column {key!r}", number, 1, MAX_BUCKETS, BUCKETS)
