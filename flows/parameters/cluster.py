"""Configuration keys of the Dask cluster of a flow, and of its roles."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from psflow.flows.parameters.base import FlowParameters, OnResume
from psflow.ps_runtime.cluster.placement import SLOT_TIMEOUT_SECS, Placement
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.specs.cluster_task import CLOSED_SCHEMES
from psflow.ps_runtime.specs.consistency import StepDeadline

ADDRESS = re.compile(r"inproc://\S+|((tcp|tls|ucx|wss?)://)?([^\s/:]+|\[[\da-fA-F:.]+\]):\d{1,5}")
"""Schemes of Dask; a host, or an IPv6 address in brackets."""


class _Address(FlowParameters):
    address: Annotated[str | None, OnResume.FREE] = Field(
        None, description="Address of a Dask scheduler; null: start a cluster on this machine."
    )
    require_tls: Annotated[bool, OnResume.FREE] = Field(
        False, description="Whether to refuse a Dask scheduler without TLS; false: warn of it."
    )

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and ADDRESS.fullmatch(value) is None:
            raise ValueError(f"expected tcp://HOST:PORT, or tls:// with certificates, got {value!r}")
        return value

    @model_validator(mode="after")
    def _is_closed(self) -> Self:
        if self.require_tls and self.address is not None and not self.address.startswith(CLOSED_SCHEMES):
            raise ValueError(
                f"require_tls is true, so address should be tls://HOST:PORT, got {self.address!r}; "
                "give the scheduler certificates, or set require_tls=false"
            )
        return self


class StepDeadlineParameters(FlowParameters):
    """Time limit of a step for which another replica waits; beyond it the others continue without the worker."""

    multiple: Annotated[float, OnResume.FREE] = Field(
        StepDeadline.multiple, gt=1, description="Limit as a multiple of the usual duration of a step of this worker."
    )
    min_secs: Annotated[float, OnResume.FREE] = Field(
        StepDeadline.min_secs, gt=0, description="Minimum seconds for a step."
    )
    max_secs: Annotated[float, OnResume.FREE] = Field(
        StepDeadline.max_secs,
        gt=0,
        allow_inf_nan=False,
        description="Maximum seconds for a step, and the limit of the first step of each incarnation.",
    )

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        try:
            self.build()
        except UsageError as error:
            raise ValueError("; ".join(error.faults)) from None
        return self

    def build(self) -> StepDeadline:
        """Return the setting of a RunConfig."""
        return StepDeadline(self.multiple, self.min_secs, self.max_secs)


class ClusterParameters(_Address):
    """Cluster and number of roles."""

    ps: Annotated[int, OnResume.FREE] = Field(1, ge=1, description="Number of parameter servers.")
    workers: Annotated[int, OnResume.FREE] = Field(
        1, ge=0, description="Number of workers besides the chief, which also trains."
    )
    min_workers: Annotated[int | None, OnResume.FREE] = Field(
        None,
        ge=0,
        description="Minimum number of workers to start training, and to continue it beyond slot_timeout_secs; "
        "null: all to start, none to continue.",
    )
    max_workers: Annotated[int | None, OnResume.FREE] = Field(
        None,
        ge=0,
        description="Maximum number of workers: further ones begin as soon as the cluster has slots for them, or as "
        "psflow scale asks; null: workers.",
    )
    adaptive: Annotated[bool, OnResume.FREE] = Field(
        False, description="Whether the cluster at address grows as Dask's adaptive scaling asks it to."
    )
    placement: Annotated[Placement, OnResume.FREE] = Field(
        "spread",
        description="spread: ps on different hosts, and replicas, too; pack: all roles on few hosts.",
    )
    admission_timeout_secs: Annotated[float, OnResume.FREE] = Field(
        60.0, gt=0, description="Seconds to wait for enough free slots."
    )
    max_restarts: Annotated[int, OnResume.FREE] = Field(
        3,
        ge=0,
        description="Restarts of a role within an hour, after losses and first exceptions; one more ends the job.",
    )
    probe_timeout_secs: Annotated[float, OnResume.FREE] = Field(
        30.0, gt=0, description="Seconds that a ps, the chief or the evaluator may be silent before it is lost."
    )
    slot_timeout_secs: Annotated[float, OnResume.FREE] = Field(
        SLOT_TIMEOUT_SECS,
        gt=0,
        description="Seconds to wait for a slot for a lost role without which the job cannot train.",
    )
    step_deadline: StepDeadlineParameters = Field(
        StepDeadlineParameters(), description="Time limit of a step for which another replica waits."
    )
    when_full: Annotated[Literal["wait", "fail"], OnResume.FREE] = Field(
        "wait", description="Whether to wait for slots that other jobs use, or to fail at once."
    )

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.min_workers is not None and self.min_workers > self.workers:
            raise ValueError(f"min_workers should be at most workers, {self.workers}, got {self.min_workers}")
        if self.max_workers is not None and self.max_workers < self.workers:
            raise ValueError(f"max_workers should be at least workers, {self.workers}, got {self.max_workers}")
        if self.adaptive and self.address is None:
            raise ValueError("adaptive is true, so address should be that of an adaptive cluster, got null")
        return self

    @property
    def most_workers(self) -> int:
        """The number of workers that the job may have."""
        return self.workers if self.max_workers is None else self.max_workers

    @property
    def workers_to_begin(self) -> int:
        """The number of workers that the job needs to start."""
        return self.workers if self.min_workers is None else self.min_workers


class PredictClusterParameters(_Address):
    """Cluster to predict on."""

    workers: int = Field(2, ge=1, description="Number of Dask workers of a cluster on this machine.")


class EvaluateClusterParameters(PredictClusterParameters):
    """Cluster to evaluate on."""

    admission_timeout_secs: float = Field(60.0, gt=0, description="Seconds to wait for a first free thread.")
