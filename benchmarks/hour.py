"""One hour of a large cluster, attributed, beside the same queries sent bare (make bench).

Wall times are ratios to a floor measured in the same run: the very queries that attribution sends, each read to the
last byte and thrown away. Samples are what Prometheus itself says it processed (`stats=all`).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests
from rich.console import Console
from rich.table import Table

from benchmarks import large_cluster
from gpucost.adapters.prometheus import metrics_reader
from gpucost.adapters.prometheus.client import PrometheusClient, Series
from gpucost.domain.hours import HOUR, floor_hour
from gpucost.services.attribute import attribute_hours
from gpucost.settings import Settings, parse_settings
from local.prometheus import running_prometheus

ROUNDS = 5


def settings_for(url: str) -> Settings:
    """Settings of the large cluster with its 200 business units."""
    units = [{"name": f"unit-{i}", "namespaces": [f"team-{i}"]} for i in range(large_cluster.UNITS)]
    return parse_settings(
        json.dumps(
            {
                "clusters": [{"name": "large", "prometheus": {"url": url}}],
                "pricing": {"source": "constant", "gpu_hourly_usd": 12},
                "business_units": units,
            }
        )
    )


def attribute(url: str, hour: datetime) -> int:
    """Attribute the hour once; returns its lines."""
    settings = settings_for(url)
    cluster = settings.clusters[0]
    (record,) = attribute_hours(metrics_reader(cluster, settings), cluster, settings, [hour], now=datetime.now(UTC))
    return len(record.lines)


def recorded_queries(url: str, hour: datetime) -> list[tuple[str, Mapping[str, str]]]:
    """The queries that attributing the hour sends."""
    sent: list[tuple[str, Mapping[str, str]]] = []
    ask = PrometheusClient._series

    def record(self: PrometheusClient, path: str, form: Mapping[str, str]) -> list[Series]:
        sent.append((path, form))
        return ask(self, path, form)

    PrometheusClient._series = record  # type: ignore[method-assign]  # the benchmark looks over the client's shoulder
    try:
        attribute(url, hour)
    finally:
        PrometheusClient._series = ask  # type: ignore[method-assign]  # and steps back
    return sent


def send_bare(url: str, queries: list[tuple[str, Mapping[str, str]]]) -> None:
    """The floor: the same queries, read and thrown away."""
    session = requests.Session()
    for path, form in queries:
        answer = session.post(f"{url}/api/v1/{path}", data=dict(form), timeout=120)
        answer.raise_for_status()


def samples_processed(url: str, queries: list[tuple[str, Mapping[str, str]]]) -> int:
    """What Prometheus says the queries cost."""
    total = 0
    for path, form in queries:
        answer = requests.post(f"{url}/api/v1/{path}", data={**form, "stats": "all"}, timeout=120).json()
        total += answer["data"]["stats"]["samples"]["totalQueryableSamples"]
    return total


def raw_samples(url: str, hour: datetime) -> int:
    """All samples that the hour has, of every metric that Prometheus holds."""
    total = 0
    for name in requests.get(f"{url}/api/v1/label/__name__/values", timeout=120).json()["data"]:
        form = {"query": f"sum(count_over_time({name}[1h] offset 1ms))", "time": str((hour + HOUR).timestamp())}
        answer = requests.post(f"{url}/api/v1/query", data=form, timeout=120).json()
        total += sum(int(row["value"][1]) for row in answer["data"]["result"])
    return total


def peak_memory_mib(url: str, hour: datetime) -> float:
    """Peak resident memory of a process of its own that attributes the hour."""
    code = (
        "import resource,sys;from datetime import datetime;from benchmarks.hour import attribute;"
        "attribute(sys.argv[1], datetime.fromisoformat(sys.argv[2]));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, url, hour.isoformat()], check=True, capture_output=True, text=True
    )
    return int(done.stdout) / 1024


def run(pods: int) -> dict[str, Any]:
    """Measure, in turns so that a drifting machine moves both."""
    hour = floor_hour(datetime.now(UTC)) - 3 * HOUR
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.om"
        start = int((hour - timedelta(minutes=10)).timestamp())
        large_cluster.write(path, pods, start, start + 80 * 60)
        with running_prometheus(path) as url:
            queries = recorded_queries(url, hour)
            ours, bare = [], []
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                send_bare(url, queries)
                middle = time.perf_counter()
                lines = attribute(url, hour)
                ours.append(time.perf_counter() - middle)
                bare.append(middle - begin)
            processed, raw = samples_processed(url, queries), raw_samples(url, hour)
            return {
                "pods": pods,
                "lines": lines,
                "queries": len(queries),
                "samples_processed": processed,
                "raw_samples": raw,
                "samples_ratio": processed / raw,
                "bare_seconds": statistics.median(bare),
                "attributed_seconds": statistics.median(ours),
                "ratio": statistics.median(a / b for a, b in zip(ours, bare, strict=True)),
                "peak_memory_mib": peak_memory_mib(url, hour),
            }


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = run(options.pods)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    aims = {"ratio": "≤ 1.5", "samples_ratio": "≤ 1.2", "queries": "≤ 8", "peak_memory_mib": "≤ 300"}
    table = Table("figure", "value", "aim", title="one hour, attributed, beside the same queries sent bare")
    for name, value in found.items():
        table.add_row(name, f"{value:,.3f}" if isinstance(value, float) else f"{value:,}", aims.get(name, ""))
    Console().print(table)


if __name__ == "__main__":
    main()
