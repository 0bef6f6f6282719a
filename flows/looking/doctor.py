"""What ``psflow doctor`` answers: what was looked at, a line each, and what to do about what is wrong."""

from __future__ import annotations

from pathlib import Path

from psflow.flows.answering.answer import Answer
from psflow.flows.answering.exit_codes import ExitCode
from psflow.flows.looking.doctor_cluster import cluster_findings
from psflow.flows.looking.doctor_machine import machine_findings, server_findings
from psflow.flows.looking.findings import Finding, Level
from psflow.flows.parameters.cluster import PredictClusterParameters
from psflow.flows.parameters.parsing import parse_as
from psflow.ps_runtime.config.files import Origin

__all__ = ["doctor"]


def doctor(address: str | None) -> Answer:
    """Examine this machine, the servers, and a cluster; a fault makes the exit code 1.

    Raises
    ------
    ConfigError
        If `address` is none of a scheduler.
    """
    parse_as(PredictClusterParameters, {"address": address}, {"address": Origin("--address")})
    findings = [*machine_findings(), *server_findings(), *cluster_findings(address, Path.cwd())]
    num_faults, num_warnings = (sum(f.level is level for f in findings) for level in (Level.FAULT, Level.WARNING))
    summary = f"faults: {num_faults}, warnings: {num_warnings}" if num_faults or num_warnings else "all is well"
    facts = {"findings": [_facts(finding) for finding in findings], "faults": num_faults, "warnings": num_warnings}
    return Answer(facts, [*map(str, findings), "", summary], ExitCode.FAILED if num_faults else ExitCode.OK)


def _facts(finding: Finding) -> dict[str, str]:
    return {"level": finding.level.value, "topic": finding.topic, "text": finding.text}
