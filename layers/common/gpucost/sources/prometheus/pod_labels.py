"""Labels of pods and namespaces as kube-state-metrics reports them, and where sources contradict each other."""

from collections.abc import Container, Iterable, Mapping
from itertools import combinations

from msgspec import Struct, field

from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.implausible_samples import SUSPECT_PREFIX, overlap_beyond_lag
from gpucost.core.metering.observations import ScrapeTarget
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.tables import Labels, Rows, exported_label, object_labels, pod_name, scrape_target

ExportedNames = Mapping[ScrapeTarget, Container[str]]
"""The labels that each target reports of any object, so that it would report them of others that have them."""
NO_NAMES: ExportedNames = {}


class _ReportedLabels(Struct):
    """The labels of one object at one time, by the target that reports them."""

    by_target: dict[ScrapeTarget, dict[str, str]] = field(default_factory=dict)

    def add(self, target: ScrapeTarget, labels: Mapping[str, str]) -> None:
        self.by_target.setdefault(target, {}).update(labels)

    def merged(self) -> dict[str, str]:
        return {name: value for labels in self.by_target.values() for name, value in labels.items()}

    def contradictory_labels(self, exported: "ExportedNames") -> set[str]:
        """Labels for which targets report different values."""
        pairs = combinations(self.by_target.items(), 2)
        return {
            name
            for (target, labels), (other_target, other_labels) in pairs
            for name in differing_labels(labels, other_labels, exported.get(target, ()), exported.get(other_target, ()))
        }


class LabelSpan(Struct, frozen=True):
    """Labels that one target reported together, from their first sample to their last."""

    target: ScrapeTarget
    labels: Mapping[str, str]
    time: IntervalMs


class LabelTable:
    """Collects labels of pods and namespaces. Labels with contradictory values are left out, with a note."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], _ReportedLabels] = {}
        self._spans: dict[tuple[str, str], list[LabelSpan]] = {}
        self._exported: dict[ScrapeTarget, set[str]] = {}
        """Of pods."""
        self._exported_of_namespaces: dict[ScrapeTarget, set[str]] = {}
        self._namespaces: dict[str, dict[str, _ReportedLabels]] = {}
        """By namespace and statistic: at the start of the hour and at its end."""
        self._of_namespaces: dict[str, dict[str, str]] = {}
        """Cache of `of_namespace`, because most pods share a namespace with others."""
        self.notes: dict[str, None] = {}

    def add(self, rows: Mapping[str, Rows]) -> None:
        """Add results of `Queries.labels`, by statistic."""
        for labels, _ in rows.get("pod", []):
            pod, target, of_pod = pod_name(labels), scrape_target(labels), object_labels(labels)
            self._pods.setdefault(pod, _ReportedLabels()).add(target, of_pod)
            self._exported.setdefault(target, set()).update(of_pod)
        for stat in ("namespace-start", "namespace"):
            for labels, _ in rows.get(stat, []):
                by_stat = self._namespaces.setdefault(exported_label(labels, "namespace"), {})
                target, of_namespace = scrape_target(labels), object_labels(labels)
                by_stat.setdefault(stat, _ReportedLabels()).add(target, of_namespace)
                self._exported_of_namespaces.setdefault(target, set()).update(of_namespace)

    def add_samples(self, series: Iterable[Series]) -> None:
        """Add raw samples of pods' labels."""
        for labels, samples in series:
            pod = pod_name(labels)
            time = IntervalMs(samples[0][0], samples[-1][0])
            span = LabelSpan(scrape_target(labels), object_labels(labels), time)
            self._spans.setdefault(pod, []).append(span)
            self._exported.setdefault(span.target, set()).update(span.labels)

    def has_contradictory_labels(self, namespace: str, pod: str) -> bool:
        """Whether targets report different values of a pod's labels at the end of the hour."""
        values = self._pods.get((namespace, pod))
        return values is not None and len(values.by_target) > 1 and bool(values.contradictory_labels(self._exported))

    def of_pod(self, namespace: str, pod: str) -> dict[str, str]:
        """A pod's labels. Of labels that changed, the latest values."""
        values = self._pods.get((namespace, pod))
        if values is None and not self._spans:
            return {}
        labels = values.merged() if values else {}
        spans = sorted(self._spans.get((namespace, pod), ()), key=lambda span: span.time.end)
        for span in spans:
            labels.update(span.labels)
        return self._drop_contradictory(labels, contradictory_labels(spans, self._exported), f"pod {namespace}/{pod}")

    def of_namespace(self, namespace: str) -> dict[str, str]:
        """A namespace's labels at the hour's end.

        If values differ only at one end of the hour, a target lags behind a change. The other end then decides.
        """
        if namespace not in self._of_namespaces:
            self._of_namespaces[namespace] = self._labels_of_namespace(namespace)
        return self._of_namespaces[namespace]

    def _labels_of_namespace(self, namespace: str) -> dict[str, str]:
        by_stat = self._namespaces.get(namespace, {})
        start, end = by_stat.get("namespace-start", _ReportedLabels()), by_stat.get("namespace", _ReportedLabels())
        labels = {**start.merged(), **end.merged()}
        exported = self._exported_of_namespaces
        at_start, at_end = start.contradictory_labels(exported), end.contradictory_labels(exported)
        for name in at_end - at_start:
            if name in start.merged():
                labels[name] = start.merged()[name]
        lasting = {name for name in at_end if name in at_start or name not in start.merged()}
        return self._drop_contradictory(labels, lasting, f"namespace {namespace}")

    def _drop_contradictory(self, labels: dict[str, str], names: Iterable[str], object_name: str) -> dict[str, str]:
        for name in sorted(names):
            if labels.pop(name, None) is not None:
                difference = f"sources report different values of {name} for {object_name}"
                note = f"{SUSPECT_PREFIX}{difference}; the label is left out"
                self.notes[note] = None
        return labels


def contradictory_labels(spans: Iterable[LabelSpan], exported: ExportedNames = NO_NAMES) -> set[str]:
    """Labels for which targets report different values at the same time, for longer than one of them may lag."""
    return {
        name
        for span, other in combinations(spans, 2)
        if span.target != other.target and overlap_beyond_lag(span.time, other.time)
        for name in differing_labels(
            span.labels, other.labels, exported.get(span.target, ()), exported.get(other.target, ())
        )
    }


def differing_labels(
    labels: Labels, other_labels: Labels, exported: Container[str] = (), other_exported: Container[str] = ()
) -> set[str]:
    """Labels of one object with different values.

    Targets may export different labels. So a missing label is different only from a target that exports it of others.
    """
    return {
        name
        for name in labels.keys() | other_labels.keys()
        if labels.get(name, "") != other_labels.get(name, "")
        and (name in labels or name in exported)
        and (name in other_labels or name in other_exported)
    }
