"""How a cluster's metrics are collected, and which server answers: only what labels and responses prove."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from gpucost.settings import PrometheusSettings
from gpucost.sources.prometheus.client import PrometheusClient

COLLECTOR_LABELS = ("gpucost_collector", "otel_scope_name", "prometheus", "endpoint", "service")
"""Labels of series that show which collector wrote them."""
_AMP = "Amazon Managed Service for Prometheus"
_AMP_HOST = re.compile(r"aps-workspaces\.[a-z0-9-]+\.amazonaws\.com(\.cn)?")
STACK = "kube-prometheus-stack"
_OPERATOR = "Prometheus operator"
_PAGES = "docs/how-to"
_PAGE_OF_COLLECTOR = {
    "amp-scraper": "clusters/amp-scraper.md",
    "otel-collector": "clusters/opentelemetry.md",
    "prometheus-agent": "existing-cluster.md",
    STACK: "clusters/kube-prometheus-stack.md",
    _OPERATOR: "clusters/kube-prometheus-stack.md",
}
_OBJECT = re.compile(r"[a-z0-9.-]+/[a-z0-9.-]+")
"""Namespace and name of a Prometheus object, which the operator writes into the external label `prometheus`."""


@dataclass(frozen=True, slots=True)
class CollectionSetup:
    """The collectors and the server of one cluster. None and an empty list mean that they are unknown."""

    server: str | None
    collectors: Sequence[str]
    pages: Sequence[str]
    """Pages that describe how to connect such a cluster."""


def examine_setup(
    client: PrometheusClient, prometheus: PrometheusSettings, label_sets: Iterable[Mapping[str, str]]
) -> CollectionSetup:
    """Recognize the collectors by the labels of series, and the server by its responses.

    Args:
        client: of the cluster's Prometheus.
        prometheus: the settings of the connection.
        label_sets: labels of the series of kube-state-metrics and the GPU exporters.
    """
    collectors = collectors_of(label_sets)
    server = _server(client, prometheus.url)
    pages = {_PAGE_OF_COLLECTOR[collector] for collector in collectors}
    if server and not server.startswith((_AMP, "Prometheus")):
        pages.add("clusters/other-servers.md")
    elif not pages:
        pages.add("clusters/prometheus.md" if server and server != _AMP else "existing-cluster.md")
    return CollectionSetup(server, collectors, [f"{_PAGES}/{page}" for page in sorted(pages)])


def collectors_of(label_sets: Iterable[Mapping[str, str]]) -> list[str]:
    """Recognize the collectors by the labels of series."""
    return sorted({collector for labels in label_sets if (collector := _collector(labels))})


def _collector(labels: Mapping[str, str]) -> str | None:
    if labels.get("gpucost_collector") in _PAGE_OF_COLLECTOR:
        return labels["gpucost_collector"]
    if labels.get("otel_scope_name"):
        return "otel-collector"
    written_by = labels.get("prometheus", "")
    if _OBJECT.fullmatch(written_by) or (labels.get("endpoint") and labels.get("service")):
        return STACK if "kube-prometheus" in f"{written_by} {labels.get('service', '')}" else _OPERATOR
    return None


def _server(client: PrometheusClient, url: str) -> str | None:
    if _AMP_HOST.fullmatch(urlsplit(url).hostname or ""):
        return _AMP
    build = client.server_information("status/buildinfo")
    if not isinstance(build, dict):
        return None
    if application := _text(build.get("application")):  # Mimir and Cortex
        return _with_version(application, build)
    if set(build) == {"version"}:  # VictoriaMetrics' version is that of a Prometheus with the same API
        return "VictoriaMetrics" if client.server_information("status/active_queries") is not None else None
    if client.server_information("stores") is not None:
        return _with_version("Thanos", build)
    runtime = client.server_information("status/runtimeinfo")
    has_storage = isinstance(runtime, dict) and "storageRetention" in runtime
    return _with_version("Prometheus", build) if has_storage else None


def _with_version(name: str, build: Mapping[str, Any]) -> str:
    return f"{name} {_text(build.get('version'))}".strip()


def _text(field: object) -> str:
    return field if isinstance(field, str) else ""
