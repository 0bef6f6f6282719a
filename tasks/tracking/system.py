"""The machine of the flow, as MLflow's own monitors see it: what the tab "System metrics" of a run shows."""

from __future__ import annotations

from typing import Any

__all__ = ["SystemMetrics"]

PREFIX = "system/"


class SystemMetrics:
    """Samples processors, memory, disk and network of this host.

    MLflow's own thread would count steps of its own; these are recorded against the global_step like all other metrics.
    """

    def __init__(self) -> None:
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
        from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
        from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

        types: tuple[Any, ...] = (CPUMonitor, DiskMonitor, NetworkMonitor)
        self._monitors = [type_() for type_ in types]
        self.sample()  # the processors are measured from one sample to the next

    def sample(self) -> dict[str, float]:
        """Return what is now, by names such as ``system/cpu_utilization_percentage``. Cheap."""
        values: dict[str, float] = {}
        for monitor in self._monitors:
            monitor.collect_metrics()
            values |= {PREFIX + name: float(value) for name, value in monitor.aggregate_metrics().items()}
            monitor.clear_metrics()
        return values
