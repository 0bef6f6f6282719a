"""The names that a program of the Estimator finds in ``tf.estimator``, with ``import psflow as tf``."""

from __future__ import annotations

import pytest

import psflow
import psflow as tf


@pytest.mark.parametrize("name", tf.estimator.__all__)
def test_a_name_is_that_of_psflow(name: str) -> None:
    assert getattr(tf.estimator, name) is getattr(psflow, name)


def test_any_other_name_is_none() -> None:
    with pytest.raises(AttributeError, match=r"^module 'psflow\.estimator' has no attribute 'Csv'$"):
        _ = tf.estimator.Csv
