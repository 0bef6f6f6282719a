from __future__ import annotations

from collections.abc import Callable

import pytest

from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema


@pytest.fixture
def make_schema() -> Callable[..., InputSchema]:
    def make(*features: tuple[str, tuple[int, ...]], columns: tuple[str, ...] = ()) -> InputSchema:
        return InputSchema(tuple(ArraySpec(name, "float32", shape) for name, shape in features), columns=columns)

    return make
