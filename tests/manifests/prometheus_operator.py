"""Prometheus' configuration as the Prometheus operator would write it from the values of kube-prometheus-stack.

The rules around those of a PodMonitor and a ServiceMonitor are those of the operator's `promcfg.go`, version 0.93.
"""

import re
from collections.abc import Mapping
from typing import Any

from tests.manifests.cluster import LABELS, NAMESPACES

_RUNNING = {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"}
PROMETHEUS = "monitoring/kube-prometheus-stack-prometheus"
REPLICA = "prometheus-kube-prometheus-stack-prometheus-0"


def configuration(values: Mapping[str, Any], discovery: str, receiver: str, *, seconds: int) -> Any:
    """Return the configuration of a Prometheus that discovers pods by HTTP, and writes to a receiver without AWS.

    Args:
        values: of the chart.
        discovery: address of the discovered pods.
        receiver: address of the Prometheus that stands for the workspace.
        seconds: between scrapes, instead of the interval of the values.
    """
    spec = values["prometheus"]["prometheusSpec"]
    (remote_write,) = spec["remoteWrite"]
    jobs = [
        _service_monitor(values["kube-state-metrics"]),
        *map(_pod_monitor, values["prometheus"]["additionalPodMonitors"]),
    ]
    for job in jobs:
        job["http_sd_configs"] = [{"url": discovery}]
    return {
        "global": {
            "scrape_interval": f"{seconds}s",
            "scrape_timeout": f"{seconds}s",
            "external_labels": {
                **spec["externalLabels"],
                "prometheus": PROMETHEUS,
                spec["replicaExternalLabelName"]: REPLICA,
            },
        },
        "remote_write": [
            {
                "url": f"{receiver}/api/v1/write",
                "queue_config": {"batch_send_deadline": "200ms"},
                "write_relabel_configs": [_snake_case(rule) for rule in remote_write["writeRelabelConfigs"]],
            }
        ],
        "scrape_configs": jobs,
    }


def _service_monitor(values: Mapping[str, Any]) -> dict[str, Any]:
    """The chart's ServiceMonitor of kube-state-metrics, whose Service has one pod."""
    label, name, port = LABELS["kube-state-metrics"]
    key = re.sub("[^a-zA-Z0-9_]", "_", label)
    return {
        "job_name": "serviceMonitor/monitoring/kube-prometheus-stack-kube-state-metrics/0",
        "honor_labels": values["prometheus"]["monitor"]["http"]["honorLabels"],
        "relabel_configs": [
            _RUNNING,
            _keep(
                [f"__meta_kubernetes_pod_label_{key}", "__meta_kubernetes_pod_container_port_name"], f"{name};{port}"
            ),
            _keep(["__meta_kubernetes_namespace"], NAMESPACES["kube-state-metrics"]),
            *_target_labels(),
            {"target_label": "service", "replacement": "kube-prometheus-stack-kube-state-metrics"},
            {"target_label": "endpoint", "replacement": port},
            {"source_labels": [f"__meta_kubernetes_pod_label_{key}"], "target_label": "job"},
        ],
    }


def _pod_monitor(values: Mapping[str, Any]) -> dict[str, Any]:
    (endpoint,) = values["podMetricsEndpoints"]
    assert values["selector"] == {}
    namespaces = values["namespaceSelector"]
    return {
        "job_name": f"podMonitor/monitoring/{values['name']}/0",
        "honor_labels": endpoint["honorLabels"],
        **_snake_case({key: limit for key, limit in values.items() if key.endswith("Limit")}),
        "relabel_configs": [
            _RUNNING,
            _keep(["__meta_kubernetes_namespace"], ".*" if "any" in namespaces else "|".join(namespaces["matchNames"])),
            *_target_labels(),
            {"target_label": "job", "replacement": f"monitoring/{values['name']}"},
            *(_snake_case(rule) for rule in endpoint["relabelings"]),
        ],
        "metric_relabel_configs": [_snake_case(rule) for rule in endpoint.get("metricRelabelings", ())],
    }


def _target_labels() -> list[dict[str, Any]]:
    sources = {"namespace": "namespace", "container": "pod_container_name", "pod": "pod_name"}
    return [
        {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": label} for label, source in sources.items()
    ]


def _keep(labels: list[str], regex: str) -> dict[str, Any]:
    return {"source_labels": labels, "regex": regex, "action": "keep"}


def _snake_case(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key): rule[key] for key in rule}
