"""Builds OpenMetrics by hand: series with constant values over intervals, at a scrape interval.

It is deliberately simple: it only repeats constant values at given times.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
"""The hour under test: recent, so that no retention or look-back gets in the way."""


@dataclass
class Timeline:
    """Collects samples; minutes count from the start of `HOUR` and may be negative."""

    cluster: str = ""
    step: float = 60.0
    phase: float = 0.0
    """Seconds by which scrapes are shifted."""
    gaps: Sequence[tuple[float, float]] = ()
    """Minutes in which nothing is scraped."""
    families: dict[str, list[str]] = field(default_factory=dict)
    base: datetime = HOUR
    """The time from which minutes count."""

    def add(self, metric: str, start: float = -65, end: float = 125, value: float | str = 1, **labels: str) -> None:
        """Samples of one series in `[start, end)` minutes."""
        if self.cluster:
            labels = {"cluster": self.cluster, **labels}
        inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        rows = self.families.setdefault(metric, [])
        rows.extend(f"{metric}{{{inside}}} {value} {at}" for at in self._times(start, end))

    def _times(self, start: float, end: float) -> Iterable[str]:
        base = self.base.timestamp()
        first = int((start * 60 - self.phase) // self.step) - 1
        last = int((end * 60 - self.phase) // self.step) + 1
        for tick in range(first, last + 1):
            seconds = tick * self.step + self.phase
            minute = seconds / 60
            if start <= minute < end and not any(a <= minute < b for a, b in self.gaps):
                yield f"{base + seconds:.3f}"

    def pod(
        self,
        name: str,
        start: float = -65,
        end: float = 125,
        *,
        namespace: str = "team",
        uid: str = "",
        node: str = "n1",
        units: int = 1,
        resource: str = "nvidia_com_gpu",
        pending: float = 0,
        finished_at: float | None = None,
        phase_end: str = "Succeeded",
        **ksm: str,
    ) -> None:
        """A pod with one container: pending on its node for some minutes, then running, then perhaps finished."""
        ksm = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"} | ksm
        pod_labels = {"namespace": namespace, "pod": name, "uid": uid or f"uid-{name}", **ksm}
        self.add(
            "kube_pod_container_resource_requests",
            start,
            end,
            units,
            container="main",
            node=node,
            resource=resource,
            unit="integer",
            **pod_labels,
        )
        stop = end if finished_at is None else finished_at
        begin = start + pending
        for phase, (a, b) in {"Pending": (start, begin), "Running": (begin, stop), phase_end: (stop, end)}.items():
            self.add("kube_pod_status_phase", start, a, 0, phase=phase, **pod_labels)
            self.add("kube_pod_status_phase", a, b, 1, phase=phase, **pod_labels)
            self.add("kube_pod_status_phase", b, end, 0, phase=phase, **pod_labels)

    def node(
        self,
        name: str = "n1",
        start: float = -65,
        end: float = 125,
        *,
        advertised_from: float | None = None,
        capacity: dict[str, int] | None = None,
        allocatable: dict[str, int] | None = None,
        labels: dict[str, str] | None = None,
        ksm: dict[str, str] | None = None,
        zone: str = "us-west-2a",
    ) -> None:
        """A node, its labels and what it advertises; `zone` is that of its provider id."""
        ksm = ksm or {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}
        self.add("kube_node_info", start, end, node=name, provider_id=f"aws:///{zone}/i-{name}", **ksm)
        if labels:
            kept = {f"label_{key}": value for key, value in labels.items()}
            self.add("kube_node_labels", start, end, node=name, **kept, **ksm)
        for metric, units in (
            ("kube_node_status_capacity", capacity or {}),
            ("kube_node_status_allocatable", {**(capacity or {}), **(allocatable or {})} if capacity else {}),
        ):
            for resource, count in units.items():
                begin = start if advertised_from is None else advertised_from
                self.add(metric, begin, end, count, node=name, resource=resource, unit="integer", **ksm)

    def up(
        self, start: float = -65, end: float = 125, job: str = "kube-state-metrics", instance: str = "10.0.0.1:8080"
    ) -> None:
        """A target that answers every scrape."""
        self.add("up", start, end, 1, job=job, instance=instance)

    def device(
        self,
        value: float | str,
        start: float = -65,
        end: float = 125,
        *,
        signal: str = "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        gpu: int = 0,
        node: str = "n1",
        **labels: str,
    ) -> None:
        """A GPU's signal."""
        device_labels = {
            "job": "dcgm-exporter",
            "instance": f"{node}:9400",
            "gpu": str(gpu),
            "UUID": f"GPU-{node}-{gpu}",
        }
        self.add(signal, start, end, value, Hostname=node, modelName="NVIDIA A100-SXM4-40GB", **device_labels, **labels)

    def text(self) -> str:
        """The whole as OpenMetrics."""
        lines = []
        for metric, rows in self.families.items():
            lines.append(f"# TYPE {metric} gauge")
            lines += rows
        return "\n".join([*lines, "# EOF", ""])


def steady_pod(base: datetime, minutes: float, cluster: str = "") -> Timeline:
    """A node with two GPUs, of which a pod holds one and uses a quarter of it, every 30 s."""
    timeline = Timeline(cluster, base=base, step=30)
    timeline.up(0, minutes)
    timeline.up(0, minutes, job="dcgm-exporter", instance="n1:9400")
    timeline.node(start=0, end=minutes, capacity={"nvidia_com_gpu": 2})
    timeline.pod("a-0", 0, minutes, namespace="bu-a")
    timeline.device(0.25, 0, minutes, exported_pod="a-0", exported_namespace="bu-a")
    timeline.device(0, 0, minutes, gpu=1)
    return timeline


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
