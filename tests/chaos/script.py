"""Two small clusters with scripted metrics: idle GPUs that raise alerts, and an hour without metrics."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from gpucost.core.errors import MetricsUnavailableError
from gpucost.core.hours import HOUR, to_epoch_ms
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.observations import (
    ContainerRequest,
    DeviceSeries,
    NodeObservation,
    NodeState,
    Observation,
    PodObservation,
)
from gpucost.sources.prometheus.reader import PrometheusReader

GPU = "nvidia_com_gpu"
UNREACHABLE_HOUR = 1
"""The hour, counted from the first, whose metrics of cluster west are unavailable until two hours later."""


UNUSED_URL = "http://127.0.0.1:9"


def document(clusters: Sequence[str], prometheus: str = UNUSED_URL) -> str:
    """A settings document for some clusters."""
    return json.dumps(
        {
            "clusters": [{"name": name, "prometheus": {"url": prometheus}} for name in clusters],
            "pricing": {"source": "constant", "gpu_hourly_usd": 12},
            "business_units": [{"name": "research", "namespaces": ["r*"]}, {"name": "chat", "namespaces": ["chat"]}],
            "alerts": {
                "rules": [{"rule": "waste", "waste_usd_per_hour": 5, "waste_percent": 50}],
                "receivers": [{"type": "email"}],
            },
        }
    )


class ScriptedReader(PrometheusReader):
    """A metrics reader with scripted observations."""

    def __init__(self, cluster: str, first: datetime, clock: Callable[[], datetime]) -> None:
        self._cluster, self._first, self._clock = cluster, first, clock

    def observe(self, hours: Sequence[datetime]) -> list[Observation]:
        """The observation of each hour."""
        observations = []
        for hour in hours:
            number = (hour - self._first) // HOUR
            if self._cluster == "west" and number == UNREACHABLE_HOUR and self._clock() < hour + 2 * HOUR:
                raise MetricsUnavailableError("out of reach")
            observations.append(observation(self._cluster, hour, number))
        return observations

    def retention(self) -> timedelta | None:
        """Unknown."""
        return None


def observation(cluster: str, hour: datetime, number: int) -> Observation:
    """Two nodes with two GPUs and a pod each. The second pod is idle in two of every three hours."""
    scrapes = Scrapes(tuple(to_epoch_ms(hour) + minute * 60_000 for minute in range(-60, 120)))
    capacity = {GPU: Decimal(2)}
    nodes = tuple(
        NodeObservation(f"{cluster}-n{i}", f"i-{i}", None, {}, (NodeState(None, capacity, capacity, {}),))
        for i in (1, 2)
    )
    pods = tuple(
        PodObservation(
            namespace,
            f"{namespace}-{number // 4}",
            f"uid-{namespace}-{number // 4}",
            f"{cluster}-n{i}",
            (ContainerRequest("main", "container", GPU, Decimal(1)),),
            None,
        )
        for i, namespace in ((1, "research"), (2, "chat"))
    )
    uses = (Decimal("0.7") + Decimal(number) / 1000, Decimal("0.9") if number % 3 == 2 else Decimal("0.05"))
    devices = tuple(
        DeviceSeries(
            node=pod.node,
            uuid=f"GPU-{pod.node}",
            mig_instance="",
            mig_profile="",
            model="NVIDIA H100",
            namespace=pod.namespace,
            pod=pod.pod,
            uid="",
            slot="",
            resource_claim="",
            scrape_target="d",
            scale=Decimal(1),
            signal_rank=0,
            sample_count=60,
            sample_sum=60 * use,
        )
        for pod, use in zip(pods, uses, strict=True)
    )
    return Observation(
        cluster, hour, {"k": scrapes}, pods, nodes, devices, {"d": scrapes}, collects_nodes=True, collects_capacity=True
    )
