"""Answers as small tables: what each query said of one hour, before pods and nodes are put together."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from gpucost.core.metering.implausible_samples import is_count
from gpucost.core.metering.observations import Instance
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.queries import STAT

_LONGEST_NUMBER = 400
"""Characters of a 64-bit float that is written out in full."""
_LARGEST_EXPONENT = 330
"""Of a 64-bit float, subnormal ones included."""
_MOST_SAMPLES = Decimal(10**9)

Labels = Mapping[str, str]
Rows = list[tuple[Labels, Decimal]]


def at_hour(series: Iterable[Series], at_ms: int) -> dict[str, Rows]:
    """The values of one evaluated hour end, by statistic."""
    rows: dict[str, Rows] = defaultdict(list)
    for labels, samples in series:
        for at, text in samples:
            if at == at_ms:
                rows[labels.get(STAT, "")].append((labels, number(text)))
    return dict(rows)


@lru_cache(maxsize=1024)  # counts and units, of which there are few
def number(text: str) -> Decimal:
    """A sample's value, exact; may be NaN or infinite, as Prometheus' may.

    Raises:
        ValueError: no number that Prometheus could hold.
    """
    try:
        value = Decimal(text.replace("Inf", "Infinity")) if len(text) <= _LONGEST_NUMBER else None
    except InvalidOperation:
        value = None
    # A larger exponent would only cost time and memory: 1e999999999 has a billion digits.
    if value is None or (value and value.is_finite() and abs(value.adjusted()) > _LARGEST_EXPONENT):
        raise ValueError(f"{text[:50]!r} stands where a number belongs")
    return value


@lru_cache(maxsize=1024)
def sample_count(value: Decimal) -> int:
    """A number of samples.

    Raises:
        ValueError: no such number.
    """
    if not is_count(value, _MOST_SAMPLES):
        raise ValueError(f"{value} stands where a number of samples belongs")
    return int(value)


def instance(labels: Labels) -> Instance:
    """Which scraped process a series is from, and which of several equal Prometheus servers scraped it."""
    replica = labels.get("prometheus_replica") or labels.get("__replica__", "")
    return f"{labels.get('job', '')}|{replica}/{labels.get('instance', '')}"


def exported_label(labels: Labels, name: str) -> str:
    """A label as its exporter wrote it: where the scrape's own labels took the name, it is `exported_…`."""
    return labels.get(f"exported_{name}") or labels.get(name, "")


def label_name(rows: Iterable[Labels], name: str) -> str:
    """The label under which series carry a name: `exported_…` where a label of the scrape has taken it."""
    return f"exported_{name}" if any(f"exported_{name}" in labels for labels in rows) else name


def label_names(rows: Iterable[Labels], name: str) -> list[str]:
    """The labels under which series carry a name; sources may differ."""
    return sorted({f"exported_{name}" if f"exported_{name}" in labels else name for labels in rows}) or [name]


def common_label(rows: Iterable[Labels], names: Iterable[str]) -> str:
    """The first of some label names that every series carries; "" where none is."""
    series = list(rows)
    return next((name for name in names if series and all(labels.get(name) for labels in series)), "")


def object_labels(labels: Labels, prefix: str = "label_") -> dict[str, str]:
    """The object's labels that kube-state-metrics carries (`label_…`)."""
    return {name: value for name, value in labels.items() if name.startswith(prefix)}


@dataclass(slots=True)
class SampleCounts:
    """Samples in the window per instance, the most of any series of the thing."""

    counts: dict[Instance, int] = field(default_factory=dict)

    def add(self, who: Instance, value: Decimal) -> None:
        """Take one series of an instance into account."""
        self.counts[who] = max(self.counts.get(who, 0), sample_count(value))
