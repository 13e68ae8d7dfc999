"""An hour that a real control plane and its exporters reported, and what really happened in it (README.md)."""

import json
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from gpucost.core.amounts import SCALE
from gpucost.core.metering.usage import NodeUsage
from gpucost.pipeline.attribute import AttributedHour, compute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost_devstack.fleet.series import SimulatedSeries
from gpucost_devstack.installation import find_program
from gpucost_devstack.prometheus import running_prometheus
from tests.system import remote_write
from tests.system.remote_write import BLOCK_FLAGS

FOLDER = Path(__file__).parent
CLUSTER = "alpha"
HOUR = datetime(2026, 11, 28, 13, tzinfo=UTC)
HOUR_END = datetime(2026, 11, 28, 14, tzinfo=UTC)
NOW = datetime(2026, 11, 28, 15, tzinfo=UTC)
SCRAPE = 30 / 3600
"""Hours between scrapes."""
PRICE = 10
STALE = "NaN"


class Truth(NamedTuple):
    """A pod, from the watch events of the API."""

    namespace: str
    pod: str
    node: str
    gpu_hours: float
    edges: int
    """Starts and ends within the hour: each may be off by a scrape."""
    gpus: float
    use: float
    """Of the GPUs that it held, while it was running."""
    running_hours: float
    resources: frozenset[str]


class RecordedSeries(NamedTuple):
    """A series with its samples: times in milliseconds, and values as Prometheus writes them."""

    labels: Mapping[str, str]
    samples: tuple[tuple[int, str], ...]

    @property
    def name(self) -> str:
        """The metric."""
        return self.labels["__name__"]

    def relabeled(self, **labels: str) -> "RecordedSeries":
        """The series with some labels; a blank value removes the label."""
        merged = {**self.labels, **labels}
        return RecordedSeries({name: text for name, text in merged.items() if text}, self.samples)

    def without(self, *names: str) -> "RecordedSeries":
        """The series without some labels."""
        return self.relabeled(**dict.fromkeys(names, ""))

    def of(self, sample: str) -> "RecordedSeries":
        """The series with one number in all samples."""
        return RecordedSeries(self.labels, tuple((at, sample) for at, _ in self.samples))

    def later(self, shift: timedelta) -> "RecordedSeries":
        """The series at a later time, which its values name, too, if they are times."""
        seconds = round(shift.total_seconds())
        is_time = self.name.endswith(("_time", "_created", "_timestamp"))
        return RecordedSeries(
            self.labels,
            tuple((at + seconds * 1000, str(float(text) + seconds) if is_time else text) for at, text in self.samples),
        )

    def during(self, keeps: Callable[[float], bool]) -> "RecordedSeries":
        """The series with the samples of some minutes of the hour."""
        start = HOUR.timestamp() * 1000
        return RecordedSeries(
            self.labels, tuple((at, text) for at, text in self.samples if keeps((at - start) / 60_000))
        )


def unpack(folder: Path) -> Path:
    """Unpack the blocks of Prometheus' storage into a new folder."""
    storage = folder / "storage"
    (storage / "wal").mkdir(parents=True)
    with tarfile.open(FOLDER / "blocks.tgz") as archive:
        archive.extractall(storage, filter="data")
    return storage


def read_series(storage: Path, jobs: Iterable[str]) -> list[RecordedSeries]:
    """Read the series of some jobs, without the markers of ended series."""
    matcher = f'{{job=~"{"|".join(jobs)}"}}'
    command = [find_program("promtool"), "tsdb", "dump", f"--match={matcher}", str(storage)]
    samples: dict[str, list[tuple[int, str]]] = {}
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        labels, _, rest = line.rpartition("} ")
        text, at = rest.split(" ")
        if text != STALE:
            samples.setdefault(labels, []).append((int(at), text))
    return [RecordedSeries(_parse(labels), tuple(of_series)) for labels, of_series in samples.items()]


Transform = Callable[[RecordedSeries], Iterable[RecordedSeries]]


@contextmanager
def running_variants(recorded: Iterable[RecordedSeries], variants: Mapping[str, Transform]) -> Iterator[str]:
    """Run a Prometheus with variants of the hour, each with its name as the label `cluster`. Yields its URL."""
    with running_prometheus(None, *BLOCK_FLAGS, "--web.enable-remote-write-receiver") as url:
        remote_write.send_whole_series(url, _variants(tuple(recorded), variants), base_ms=0)
        yield url


def _variants(
    recorded: Sequence[RecordedSeries], variants: Mapping[str, Transform]
) -> Iterator[tuple[str, SimulatedSeries]]:
    """The series of variants. Those that a removed label distinguished become one."""
    for name, transform in variants.items():
        alike: dict[frozenset[tuple[str, str]], list[RecordedSeries]] = {}
        for original in recorded:
            for series in transform(original):
                labels = {**series.labels, "cluster": name}
                alike.setdefault(frozenset(labels.items()), []).append(series)
        for labels_of_series, members in alike.items():
            labels = dict(labels_of_series)
            samples = members[0].samples
            if len(members) > 1:
                samples = tuple(sorted(dict(chain.from_iterable(series.samples for series in members)).items()))
            yield name, SimulatedSeries(labels.pop("__name__"), labels, samples)


def _parse(labels: str) -> dict[str, str]:
    """Parse `{a="b", c="d"`. No value contains a quotation mark."""
    parts = (part.partition("=") for part in labels[1:].removesuffix('"').split('", '))
    return {name: text.removeprefix('"') for name, _, text in parts}


def settings(url: str, cluster: str = CLUSTER, more: str = "", sections: str = "") -> str:
    """A settings document for a cluster in Prometheus.

    Args:
        url: of Prometheus.
        cluster: the label that selects the series.
        more: further keys of the cluster.
        sections: further sections.
    """
    return (
        f'clusters: [{{name: {cluster}, prometheus: {{url: "{url}"}}, selector: {{cluster: {cluster}}}, {more}}}]\n'
        f"pricing: {{source: constant, gpu_hourly_usd: {PRICE}}}\n{sections}"
    )


def attribute(url: str, cluster: str = CLUSTER, more: str = "", sections: str = "") -> AttributedHour:
    """Attribute the hour, with the arguments of `settings`."""
    document = parse_settings(settings(url, cluster, more, sections))
    reader = metrics_reader(document.clusters[0], document, clock=lambda: NOW)
    (hour,) = compute_hours(reader, document.clusters[0], document, [HOUR], now=NOW)
    return hour


def nodes_of(hour: AttributedHour) -> dict[str, NodeUsage]:
    """The nodes of an hour by name."""
    assert hour.usage is not None
    assert hour.usage.nodes is not None
    return {usage.node.name: usage for usage in hour.usage.nodes}


def gpu_hours(hour: AttributedHour, *, by: str = "uid") -> dict[str, float]:
    """Sum the allocated GPU-hours by an attribute of lines."""
    sums: dict[str, float] = defaultdict(float)
    for line in hour.record.lines:
        sums[getattr(line, by)] += line.allocated_gpu_hours / SCALE
    return sums


def wrong_pods(
    hour: AttributedHour, scrape: float = SCRAPE, *, by_name: bool = False
) -> dict[str, tuple[float, float]]:
    """Allocated and true GPU-hours of pods whose figures differ by more than a scrape for each edge.

    Args:
        hour: the attributed hour.
        scrape: hours between scrapes.
        by_name: whether pods are known by namespace and name only.
    """
    allocated = gpu_hours(hour)
    pods: dict[str, list[Truth]] = defaultdict(list)
    for uid, truth in true_pods().items():
        pods[f"{truth.namespace}/{truth.pod}" if by_name else uid].append(truth)
    wrong = {uid: (hours, 0.0) for uid, hours in allocated.items() if uid not in pods}
    for uid, truths in pods.items():
        hours = sum(truth.gpu_hours for truth in truths)
        tolerance = sum(truth.gpus * truth.edges * scrape for truth in truths) + 1e-5
        if abs(allocated.get(uid, 0.0) - hours) > tolerance:
            wrong[uid] = allocated.get(uid, 0.0), hours
    return wrong


def true_pods() -> dict[str, Truth]:
    """What pods held, by uid."""
    recorded: list[dict[str, Any]] = json.loads((FOLDER / "truth.json").read_text())["pods"]
    return {
        pod["uid"]: Truth(
            pod["namespace"],
            pod["pod"],
            pod["node"],
            pod["held_gpu_hours"],
            pod["edges_in_hour"],
            pod["held_gpus"],
            pod["use_while_running"],
            _hours_between(pod["running"], pod["ended"]),
            frozenset(name for requests in pod["requests"] for name in requests),
        )
        for pod in recorded
    }


def true_nodes() -> dict[str, tuple[str, float, float]]:
    """Instance type, and hours after the hour's start at which nodes were created and deleted, by name."""
    recorded: list[dict[str, Any]] = json.loads((FOLDER / "truth.json").read_text())["nodes"]
    return {
        node["node"]: (
            node["labels"]["node.kubernetes.io/instance-type"],
            _position(node["created"], 0),
            _position(node["deleted"], 1),
        )
        for node in recorded
    }


def _hours_between(start: str | None, end: str | None) -> float:
    return max(0.0, _position(end, 1) - _position(start, 1))


def _position(time: str | None, default: float) -> float:
    """Hours after the hour's start, within the hour."""
    if time is None:
        return default
    return min(1.0, max(0.0, (datetime.fromisoformat(time) - HOUR).total_seconds() / 3600))
