"""On which Dask cluster a flow runs, and how much of it it takes."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from psflow.flows.parameters.base import FlowParameters
from psflow.flows.parameters.on_resume import OnResume

__all__ = ["ClusterParameters", "EvaluateClusterParameters", "PredictClusterParameters"]


ADDRESS = re.compile(r"inproc://\S+|((tcp|tls|ucx|wss?)://)?([^\s/:]+|\[[\da-fA-F:.]+\]):\d{1,5}")
"""Schemes that Dask knows; a host, or an IPv6 address in brackets."""


class _Address(FlowParameters):
    address: Annotated[str | None, OnResume.FREE] = Field(
        None, description="Address of a Dask scheduler; null: start a cluster on this machine."
    )

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and ADDRESS.fullmatch(value) is None:
            raise ValueError(f"expected tcp://HOST:PORT, or tls:// with certificates, got {value!r}")
        return value


class ClusterParameters(_Address):
    """Cluster and number of roles."""

    ps: Annotated[int, OnResume.FREE] = Field(1, ge=1, description="Number of parameter servers.")
    workers: Annotated[int, OnResume.FREE] = Field(
        1, ge=0, description="Number of workers besides the chief, which also trains."
    )
    admission_timeout_secs: Annotated[float, OnResume.FREE] = Field(
        60.0, gt=0, description="Seconds to wait for enough free slots."
    )
    max_restarts: Annotated[int, OnResume.FREE] = Field(
        3, ge=0, description="New lives of a lost role within an hour; beyond them the job ends."
    )
    when_full: Annotated[Literal["wait", "fail"], OnResume.FREE] = Field(
        "wait", description="Whether to wait for slots that other jobs have taken, or to fail at once."
    )


class PredictClusterParameters(_Address):
    """Cluster to predict on."""

    workers: int = Field(2, ge=1, description="Number of Dask workers of a cluster on this machine.")


class EvaluateClusterParameters(PredictClusterParameters):
    """Cluster to evaluate on."""

    admission_timeout_secs: float = Field(60.0, gt=0, description="Seconds to wait for a first free thread.")
