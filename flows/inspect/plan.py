"""Answers ``psflow plan``: describes a training and checks everything that it needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar

from psflow.flows.inspect.endpoints import mlflow_endpoint, prefect_endpoint
from psflow.flows.output import Answer, ExitCode
from psflow.flows.parameters.configuration import PipelineParameters, pipeline_parameters, read_conf
from psflow.flows.parameters.stages import ScheduleParameters
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.building import schedule_of
from psflow.flows.planning.restart import StartPlan, plan_start
from psflow.flows.planning.training_plan import plan_attempt
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.records import ALL_STEPS, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.cluster.admission import check_capacity, slots_of
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.missing_workers import roles_to_begin, slots_needed
from psflow.ps_runtime.cluster.placement import FreeSlots, host_of
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.errors import CheckpointError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.model_dir import lost_job
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.roles import Role, RoleId, job_roles
from psflow.tasks.cleaning import size_text

T = TypeVar("T")

MAX_NAMED = 10
"""Limit of roles, and of hosts, that are listed individually."""
MAX_PROCESSES_EACH = 4
"""Processes per processor above which a warning is shown."""
CROWDED = "; too many: lower cluster.ps or cluster.workers, or name a larger cluster with cluster.address"


def plan(arguments: Sequence[str]) -> Answer:
    """Check everything that a training needs; starts and writes nothing.

    It reads the inputs and searches them for missing, NaN and infinite cells, calls the model in each mode, and checks
    the schedule and the later stages of the configuration.

    Raises UsageError if the arguments are not a configuration; all other faults are in the answer.
    """
    conf = read_conf(arguments)
    settings, schedule = conf.settings, conf.sections.schedule
    parameters = parse_parameters(settings.values, settings.origins)
    stages = pipeline_parameters(conf)
    seen = _Plan()
    start = seen.attempt(lambda: plan_start(parameters, settings))
    asked = parameters if start is None else start.parameters
    attempt = seen.attempt(lambda: plan_attempt(asked, start.fork if start else None))
    roles = job_roles(asked.cluster.ps, asked.cluster.most_workers, evaluator=True)
    if attempt is not None:
        _tell_model(seen, asked, attempt)
        _tell_warm_start(seen, attempt)
        _tell_input(seen, attempt)
        model = attempt.plan.model
        if stages.pipeline.evaluate.overrides or stages.pipeline.export.metric is not None:
            from psflow.flows.replay.export_plan import check_after_training  # imports Prefect: a second

            seen.attempt(lambda: check_after_training(stages, asked, model))
    seen.attempt(lambda: _check_prediction_input(stages, attempt))
    _tell_model_dir(seen, asked, start)
    _tell_turn(seen, asked, parameters.resume.when_running)
    _tell_roles(seen, asked, roles, attempt)
    _tell_cluster(seen, asked, roles)
    record = seen.attempt(JobFile(asked.model_dir).read)
    mlflow = mlflow_endpoint(None if record is None else record.run_id)
    for name, endpoint in (("prefect", prefect_endpoint()), ("mlflow", mlflow)):
        seen.report(name, str(endpoint), endpoint.facts())
        if endpoint.fault is not None:
            seen.faults.append(endpoint.fault)
    if schedule is not None and seen.attempt(lambda: schedule_of(schedule, settings.origins)) is not None:
        _tell_schedule(seen, schedule)
    seen.report("best model", f"{asked.registered_model}, alias best: {asked.best.mode} of {asked.best.metric}")
    return seen.answer()


@dataclass
class _Plan:
    """Findings so far: a line and facts for each topic, and faults."""

    lines: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    is_done: bool = False

    def report(self, topic: str, text: str, facts: Any = None) -> None:
        self.lines.append(f"{topic:<12} {text}")
        self.facts[topic.replace(" ", "_")] = text if facts is None else facts

    def attempt(self, look: Callable[[], T]) -> T | None:
        """Return the result of `look`; on an error record a fault and return None."""
        try:
            return look()
        except UsageError as error:
            self.faults += error.faults
        except CheckpointError as error:
            self.faults.append(str(error))
        return None

    def answer(self) -> Answer:
        faults = list(dict.fromkeys(self.faults))
        facts = {**self.facts, "faults": faults, "ready": not faults}
        if not faults:
            what = "training is complete" if self.is_done else "nothing was started or written"
            return Answer(facts, [*self.lines, "", f"ready; {what}"])
        return Answer(facts, [*self.lines, "", "not ready:", *(f"- {fault}" for fault in faults)], ExitCode.USAGE)


def _tell_model(seen: _Plan, asked: TrainParameters, attempt: Attempt) -> None:
    model = attempt.plan.model
    tables = [table.name for table in model.tables]
    seen.report(
        "model",
        f"{asked.model.name}: {len(model.variables)} variables, {size_text(model.nbytes)}"
        + (f"; tables {', '.join(tables)}" if tables else ""),
        {"name": asked.model.name, "variables": len(model.variables), "bytes": model.nbytes, "tables": tables},
    )


def _tell_warm_start(seen: _Plan, attempt: Attempt) -> None:
    start = attempt.warm_start
    if start is not None:
        path, names = CheckpointStore(start.model_dir).path(start.step), [source.name for source in start.sources]
        seen.report("warm start", f"from {path}: {', '.join(names)}", {"checkpoint": path, "variables": names})


def _tell_input(seen: _Plan, attempt: Attempt) -> None:
    datasets = attempt.plan.datasets
    examples = {name: dataset.num_examples for name, dataset in datasets.items()}
    shown = [f"{name}: {number:,} examples" for name, number in examples.items()]
    num_batches = None if "train" in datasets else attempt.plan.input.num_records
    shown[:0] = [] if num_batches is None else [f"train: {num_batches:,} batches"]
    seen.report("input", "; ".join(shown) or "generators", examples)
    _report_epoch(seen, attempt)
    found = {name: dataset.non_finite for name, dataset in datasets.items() if dataset.non_finite.num_rows}
    if found:
        seen.report(
            "not finite",
            "; ".join(f"{name}: {cells}" for name, cells in found.items()),
            {name: cells.facts() | {"dropped": cells.is_dropped} for name, cells in found.items()},
        )
        seen.lines += [f"{'':<12} {line}" for cells in found.values() for line in cells.lines()]
    if invalid := {name: dataset.invalid for name, dataset in datasets.items() if dataset.invalid.num_rows}:
        seen.report(
            "invalid",
            "; ".join(f"{name}: {cells}" for name, cells in invalid.items()),
            {name: cells.facts() for name, cells in invalid.items()},
        )
        seen.lines += [f"{'':<12} {line}" for cells in invalid.values() for line in cells.lines()]
    schema = attempt.plan.model.schema
    if schema is not None and schema.preprocessing is not None:
        _tell_columns(seen, schema.preprocessing)
    if attempt.plan.ignored:
        seen.report("ignored", "; ".join(attempt.plan.ignored), list(attempt.plan.ignored))


def _report_epoch(seen: _Plan, attempt: Attempt) -> None:
    """Report the size of an epoch if each replica reads the whole training input."""
    read = attempt.plan.input
    if read.each_worker_reads_all:
        num_replicas = attempt.num_workers + 1
        dataset = attempt.plan.datasets.get("train")
        examples = None if dataset is None else num_replicas * dataset.num_examples
        batches = None if dataset is not None or read.num_records is None else num_replicas * read.num_records
        sizes = {"examples": examples, "batches": batches}
        size = "".join(f": {number:,} {what}" for what, number in sizes.items() if number is not None)
        seen.report(
            "epoch",
            f"each of {num_replicas} replicas reads the whole training input{size}",
            {"each_worker_reads_all": True, "replicas": num_replicas, **sizes},
        )


def _tell_columns(seen: _Plan, learned: Preprocessing) -> None:
    num_columns, lines = len(learned.columns), learned.lines()
    what = f"{num_columns} column{'s' * (num_columns != 1)} read for features, of {learned.num_records:,} records"
    seen.report("columns", what, lines)
    seen.lines += [f"{'':<12} {line}" for line in lines]


def _check_prediction_input(stages: PipelineParameters, attempt: Attempt | None) -> None:
    if stages.pipeline.predict.input is not None:
        from psflow.flows.pipeline import check_prediction_input  # imports all flows: half a second

        check_prediction_input(stages, None if attempt is None else attempt.schema_to_predict())


def _tell_schedule(seen: _Plan, schedule: ScheduleParameters) -> None:
    every = f"{schedule.cron} ({schedule.timezone})" if schedule.cron else f"every {schedule.interval_secs:g} s"
    seen.report("schedule", f"{schedule.flow}: {every}, by psflow serve", schedule.model_dump(mode="json"))


def _tell_model_dir(seen: _Plan, asked: TrainParameters, start: StartPlan | None) -> None:
    step = seen.attempt(lambda: CheckpointStore(asked.model_dir).latest())
    end = asked.train.max_steps
    if start is not None and start.fork is not None and not start.fork.is_begun:
        state = f"a new job, a fork of {start.fork.parent_dir}"
    elif step is None:
        state = "a new job"
    elif end is not None and step >= end:
        state = f"is at step {step}: training is complete"
        seen.is_done = True
    else:
        end_before = seen.attempt(lambda: read_finished(asked.model_dir))
        is_early = end_before is not None and end_before.final_step == step and end_before.reason != ALL_STEPS
        state = f"resumes from step {step}{f', where {end_before.reason}' if end_before and is_early else ''}"
    until = "" if seen.is_done else "; until the data ends" if end is None else f"; until step {end}"
    seen.report(
        "model_dir",
        f"{asked.model_dir}: {state}{until}",
        {"path": asked.model_dir, "state": state, "step": step, "max_steps": end},
    )
    if (lost := seen.attempt(lambda: lost_job(asked.model_dir))) is not None:
        seen.report("lost job", lost)
    if start and start.lost_config is not None:
        seen.report("lost config", start.lost_config)
    changes = [str(change) for change in start.changes] if start else []
    if changes:
        seen.report("changed", "; ".join(changes), changes)


def _tell_turn(seen: _Plan, asked: TrainParameters, when_running: str) -> None:
    refusal = seen.attempt(JobFile(asked.model_dir).refusal)
    if refusal is not None and when_running == "fail":
        seen.faults.append(refusal)
    elif refusal is not None:
        seen.report("waits", f"up to {asked.cluster.admission_timeout_secs:g} s: {refusal.partition(';')[0]}")


def _tell_roles(seen: _Plan, asked: TrainParameters, roles: Sequence[RoleId], attempt: Attempt | None) -> None:
    sizes: Mapping[str, int] = {}
    if attempt is not None:
        layouts = place(attempt.plan.model, asked.cluster.ps)
        sizes = {str(RoleId(Role.PS, layout.index)): layout.nbytes for layout in layouts}
    seen.report(
        "roles", ", ".join(_shown(roles, sizes)), [{"role": str(role), "bytes": sizes.get(str(role))} for role in roles]
    )


def _shown(roles: Sequence[RoleId], sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield roles with the sizes of their shards; of many roles only the first and the last of each kind."""
    for _, alike in groupby(roles, lambda role: str(role) if len(roles) <= MAX_NAMED else role.role):
        names = [str(role) for role in alike]
        size = size_text(sum(sizes.get(name, 0) for name in names))
        shown, total = (names[0], size) if len(names) == 1 else (f"{names[0]} to {names[-1]}", f"{size} in all")
        yield f"{shown} ({total})" if names[0] in sizes else shown


def _tell_cluster(seen: _Plan, asked: TrainParameters, roles: Sequence[RoleId]) -> None:
    address, num_roles = asked.cluster.address, len(roles)
    num_needed = slots_needed(roles, asked.cluster.workers_to_begin)
    if address is None:
        seen.report(
            "cluster",
            f"a local one: {num_roles} processes on {os.cpu_count()} processors"
            + (CROWDED if num_roles > MAX_PROCESSES_EACH * (os.cpu_count() or 1) else ""),
            {"address": None, "slots": num_roles, "free": num_roles},
        )
        return

    open_to: list[str] = []

    def look_at_slots() -> tuple[int, FreeSlots]:
        with open_cluster(address, num_roles, 0, warn=open_to.append) as client:
            num_slots, free = slots_of(client)
            seen.attempt(lambda: check_capacity(client, num_needed, grows=asked.cluster.adaptive))
            return num_slots, free

    found = seen.attempt(look_at_slots)
    if found is None:
        return
    num_slots, free = found
    num_free = len(free)
    wait = f"; waits up to {asked.cluster.admission_timeout_secs:g} s for the others"
    is_full = num_free < num_needed <= num_slots
    seen.report(
        "cluster",
        f"{address}: {num_roles} of {num_slots} slots, {num_free} are free"
        + (wait if is_full and asked.cluster.when_full == "wait" else ""),
        {"address": address, "slots": num_slots, "free": num_free, "tls": not open_to},
    )
    if num_free >= num_needed:
        slots = free.assigned(roles_to_begin(roles, num_free), asked.cluster.placement)
        hosts: dict[str, list[str]] = {}
        for role, slot in slots.items():
            hosts.setdefault(host_of(slot), []).append(str(role))
        shown = (f"{host}: {', '.join(there)}" for host, there in list(hosts.items())[:MAX_NAMED])
        more = f"; and {len(hosts) - MAX_NAMED} more" if len(hosts) > MAX_NAMED else ""
        seen.report("hosts", f"{'; '.join(shown)}{more}", hosts)
    for fault in open_to:
        seen.report("open", fault)
    if is_full and asked.cluster.when_full == "fail":
        seen.faults.append(
            f"{num_free} of {num_slots} slots of {address} are free, but {num_needed} are needed; wait for a job to end"
        )
