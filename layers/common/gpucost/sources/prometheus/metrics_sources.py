"""Which source exports a metric, and the label matchers that the settings require of that source's series."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct, field

from gpucost.settings.metrics_sources import EXPORTERS, MetricsSourcesSettings

MetricsSource = str
"""The name of a source, such as `kube_state_metrics`."""
METRICS_SOURCES: tuple[MetricsSource, ...] = tuple(exporter.source for exporter in EXPORTERS)
"""The sources of which settings can select series."""
KUBE_STATE_METRICS: MetricsSource = "kube_state_metrics"
_PREFIXES: Sequence[tuple[str, MetricsSource]] = sorted(
    ((prefix, exporter.source) for exporter in EXPORTERS for prefix in exporter.metric_prefixes),
    key=lambda prefix_and_source: -len(prefix_and_source[0]),
)


@cache
def metrics_source_of(metric: str) -> MetricsSource | None:
    """The source that exports a metric, by the metric's name."""
    name = metric.lower()
    return next((source for prefix, source in _PREFIXES if name.startswith(prefix)), None)


class TrustedSeries(Struct, frozen=True):
    """Label matchers of each source's trusted series; all series of a source without matchers are trusted."""

    matchers_by_source: Mapping[MetricsSource, Mapping[str, Sequence[str]]] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, settings: MetricsSourcesSettings) -> "TrustedSeries":
        """Take the matchers from a cluster's settings."""
        labels_by_source = ((name, getattr(settings, name)) for name in METRICS_SOURCES)
        return cls({name: labels for name, labels in labels_by_source if labels})

    def has_matchers(self, metrics_source: MetricsSource) -> bool:
        """Whether the settings select series of a source."""
        return metrics_source in self.matchers_by_source

    def matchers(self, metrics_source: MetricsSource | None) -> list[str]:
        """The PromQL matchers of a source's series."""
        labels = self.matchers_by_source.get(metrics_source, {}) if metrics_source else {}
        return [_matcher(name, values) for name, values in sorted(labels.items())]

    def groups(self, metrics: Iterable[str]) -> list[tuple[list[str], list[str]]]:
        """Group metrics that one selector can match; each group has the matchers of that selector."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for metric in metrics:
            groups.setdefault(tuple(self.matchers(metrics_source_of(metric))), []).append(metric)
        return [(names, list(matchers)) for matchers, names in groups.items()]


def _matcher(label: str, values: Sequence[str]) -> str:
    if len(values) == 1:
        return f"{label}={json.dumps(values[0], ensure_ascii=False)}"
    return f"{label}=~{json.dumps('|'.join(map(re.escape, values)), ensure_ascii=False)}"
