"""Attributes an hour of a large cluster, compared with only sending the same queries (make bench).

Wall times are ratios to a floor measured in the same run: the very queries that attribution sends, each read to the
last byte and thrown away. Samples are what Prometheus itself says it processed (`stats=all`).
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import requests

from benchmarks import large_cluster
from benchmarks.figures import Figure, against, called, in_turns, stand_alone
from gpucost.core.hours import HOUR, floor_hour
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings import CoreSettings
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost_devstack.prometheus import running_prometheus
from tests.prometheus_clients import PrometheusClients, SentQuery, recording_client

ROUNDS = 5


def settings_for(
    url: str, units: int = large_cluster.UNITS, *, inference: bool = False, by_label: bool = False, shared: int = 0
) -> CoreSettings:
    """Settings of the large cluster and its business units.

    Args:
        url: of Prometheus.
        units: the number of business units.
        inference: whether tokens are read.
        by_label: whether units own pods by a label of the pods, instead of by namespace.
        shared: how many of the units distribute their cost.
    """
    named = [
        {
            "name": f"unit-{i}",
            **({"pod_labels": {"team": f"team-{i}"}} if by_label else {"namespaces": [f"team-{i}"]}),
            **({"distribute": "proportional"} if i < shared else {}),
        }
        for i in range(units)
    ]
    return parse_settings(
        json.dumps(
            {
                "clusters": [{"name": "large", "prometheus": {"url": url}}],
                "pricing": {"source": "constant", "gpu_hourly_usd": 12},
                "business_units": named,
                "inference": {"enabled": inference},
            }
        )
    )


def attribute(
    url: str,
    hour: datetime,
    hours: int = 1,
    units: int = large_cluster.UNITS,
    client: PrometheusClients = PrometheusClient,
    *,
    inference: bool = False,
) -> int:
    """Attribute an hour, or several that one message names, once; returns their lines."""
    settings = settings_for(url, units, inference=inference)
    cluster = settings.clusters[0]
    hour_starts = [hour + number * HOUR for number in range(hours)]
    reader = metrics_reader(cluster, settings, make_client=client)
    records = attribute_hours(reader, cluster, settings, hour_starts, now=datetime.now(UTC))
    return sum(len(record.lines) for record in records)


def recorded_queries(url: str, hour: datetime, *, inference: bool = False) -> list[SentQuery]:
    """The queries that attributing the hour sends."""
    sent: list[SentQuery] = []
    attribute(url, hour, client=recording_client(sent), inference=inference)
    return sent


def send_bare(url: str, queries: list[SentQuery]) -> None:
    """The floor: send the same queries and discard the responses."""
    session = requests.Session()
    for path, form in queries:
        answer = session.post(f"{url}/api/v1/{path}", data=dict(form), timeout=120)
        answer.raise_for_status()


def samples_processed(url: str, queries: list[SentQuery]) -> int:
    """Samples that Prometheus processed for some queries."""
    total = 0
    for path, form in queries:
        answer = requests.post(f"{url}/api/v1/{path}", data={**form, "stats": "all"}, timeout=120).json()
        total += answer["data"]["stats"]["samples"]["totalQueryableSamples"]
    return total


def raw_samples(url: str, hour: datetime) -> int:
    """All samples of the hour, of all metrics in Prometheus."""
    total = 0
    for name in requests.get(f"{url}/api/v1/label/__name__/values", timeout=120).json()["data"]:
        form = {"query": f"sum(count_over_time({name}[1h] offset 1ms))", "time": str((hour + HOUR).timestamp())}
        answer = requests.post(f"{url}/api/v1/query", data=form, timeout=120).json()
        total += sum(int(row["value"][1]) for row in answer["data"]["result"])
    return total


def peak_memory_mib(url: str, hour: datetime) -> float:
    """Peak resident memory of a separate process that attributes the hour."""
    return called("benchmarks.hour:attribute_text", url, hour.isoformat()).peak_mib


def attribute_text(url: str, hour: str) -> None:
    """`attribute` with text arguments, for a separate process."""
    attribute(url, datetime.fromisoformat(hour))


@contextmanager
def cluster(
    pods: int,
    hours: int = 1,
    *,
    step: int = large_cluster.STEP,
    units: int = large_cluster.UNITS,
    with_opencost: bool = False,
    servers: int = 0,
    replaced: int = 0,
) -> Iterator[tuple[str, datetime]]:
    """A Prometheus with some hours of a cluster (`large_cluster.write`). Yields its URL and the first hour."""
    hour = floor_hour(datetime.now(UTC)) - (2 + hours) * HOUR
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.om"
        start = int((hour - timedelta(minutes=10)).timestamp())
        end = start + hours * 3600 + 20 * 60
        large_cluster.write(
            path, pods, start, end, step, units=units, with_opencost=with_opencost, servers=servers, replaced=replaced
        )
        with running_prometheus(path) as url:
            yield url, hour


def measure(pods: int, rounds: int, step: int = large_cluster.STEP, replaced: int = 0) -> list[Figure]:
    """Measure the hour and its floor in turns."""
    with cluster(pods, step=step, replaced=replaced) as (url, hour):
        queries = recorded_queries(url, hour)
        ours, bare = in_turns(lambda: attribute(url, hour), lambda: send_bare(url, queries), rounds)
        processed, raw = samples_processed(url, queries), raw_samples(url, hour)
        subject = f"hour of {pods:,} pods" + (f" scraped every {step} s" if step != large_cluster.STEP else "")
        subject += f", {replaced}% replaced" if replaced else ""
        return [
            against(f"{subject}, ÷ its queries sent bare", ours, bare, None),
            Figure(f"{subject}: queries", len(queries), aim=None if replaced else 8),
            Figure(f"{subject}: samples processed, ÷ raw samples", processed, floor=raw, aim=1.2),
            Figure(f"{subject}: peak memory", peak_memory_mib(url, hour), "MiB", aim=300 if pods <= 10_000 else None),
        ]


def figures(quick: bool) -> list[Figure]:
    """Figures of several cluster sizes."""
    sizes = (100, 1_000) if quick else (100, 1_000, 10_000, 40_000)
    figures = [figure for pods in sizes for figure in measure(pods, 3 if quick or pods > 10_000 else ROUNDS)]
    pods = sizes[-1] if quick else 10_000
    return [*figures, *measure(pods, 3, step=15), *measure(pods, 3, step=15, replaced=20)]


if __name__ == "__main__":
    stand_alone(figures, __doc__)
