"""Query results of one hour as rows of labels and numbers, from which pods, nodes and devices are built."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache

from msgspec import Struct, field

from gpucost.core.decimals import parse_decimal
from gpucost.core.metering.implausible_samples import is_count
from gpucost.core.metering.observations import ScrapeTarget
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.queries import STATISTIC_LABEL

_OVERLAP_MS = 300_000
"""Times that overlap for longer are not those of objects that succeeded each other."""
_MAX_SAMPLE_COUNT = Decimal(10**9)

Labels = Mapping[str, str]
Rows = list[tuple[Labels, Decimal]]


def rows_at(series: Iterable[Series], at_ms: int) -> dict[str, Rows]:
    """The values at one evaluation time, in milliseconds, by statistic."""
    rows: dict[str, Rows] = defaultdict(list)
    for labels, samples in series:
        for at, text in samples:
            if at == at_ms:
                rows[labels.get(STATISTIC_LABEL, "")].append((labels, parse_number(text)))
    return dict(rows)


@lru_cache(maxsize=1024)  # counts and units, of which there are few
def parse_number(text: str) -> Decimal:
    """Parse a sample's value exactly. It may be NaN or infinite, as in Prometheus.

    Raises:
        ValueError: the text is not a number that Prometheus could store.
    """
    return parse_decimal(text.replace("Inf", "Infinity"))


@lru_cache(maxsize=1024)
def to_sample_count(value: Decimal) -> int:
    """Convert a value to a number of samples. Nothing counts the samples of a series that has none.

    Raises:
        ValueError: it is not a whole number between 1 and 1,000,000,000.
    """
    if not value or not is_count(value, _MAX_SAMPLE_COUNT):
        raise ValueError(f"{value} is not a number of samples")
    return int(value)


def scrape_target(labels: Labels) -> ScrapeTarget:
    """The target that a series was scraped from, and which replica of Prometheus scraped it."""
    replica = labels.get("prometheus_replica") or labels.get("__replica__", "")
    return f"{labels.get('job', '')}|{replica}/{labels.get('instance', '')}"


def exported_label(labels: Labels, name: str) -> str:
    """The exporter's value of a label: `exported_…` where the target's own label took the name."""
    return labels.get(f"exported_{name}") or labels.get(name, "")


def pod_name(labels: Labels) -> tuple[str, str]:
    """The namespace and name of a pod in the labels of kube-state-metrics."""
    return (
        labels.get("exported_namespace") or labels.get("namespace", ""),
        labels.get("exported_pod") or labels.get("pod", ""),
    )


def host_name(labels: Labels) -> str:
    """The node in the labels of NVIDIA's exporters, in either spelling."""
    return labels.get("Hostname") or labels.get("hostname", "")


def exported_label_name(rows: Iterable[Labels], name: str) -> str:
    """The label that holds the exporter's value: `exported_…` where the target's own label took the name."""
    return f"exported_{name}" if any(f"exported_{name}" in labels for labels in rows) else name


def exported_label_names(rows: Iterable[Labels], name: str) -> list[str]:
    """All labels that hold the exporters' values of a name, as exporters may differ (see `exported_label_name`)."""
    return sorted({f"exported_{name}" if f"exported_{name}" in labels else name for labels in rows}) or [name]


def first_common_label_name(rows: Iterable[Labels], names: Iterable[str]) -> str:
    """The first of some label names that every series has; "" if there is none."""
    series = list(rows)
    return next((name for name in names if series and all(labels.get(name) for labels in series)), "")


def object_labels(labels: Labels, prefix: str = "label_") -> dict[str, str]:
    """The labels of the Kubernetes object, which kube-state-metrics exports as `label_…`."""
    return {name: value for name, value in labels.items() if name.startswith(prefix)}


def take_turns(times: Sequence[Collection[int]]) -> bool:
    """Whether several objects of one target are never in the same scrape, although their times overlap."""
    if len(times) == 1 or sum(map(len, times)) != len(set[int]().union(*times)):
        return False
    ends = [(min(of_object), max(of_object)) for of_object in times if of_object]
    latest_start, earliest_end = max(first for first, _ in ends), min(last for _, last in ends)
    return earliest_end - latest_start > _OVERLAP_MS


class SampleCounts(Struct):
    """Samples of one object in the window by instance: the largest count of any of the object's series."""

    counts: dict[ScrapeTarget, int] = field(default_factory=dict)

    def add(self, target: ScrapeTarget, value: Decimal) -> None:
        """Add the sample count of one series."""
        self.counts[target] = max(self.counts.get(target, 0), to_sample_count(value))
