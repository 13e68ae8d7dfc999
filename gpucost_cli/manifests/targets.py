"""The ways to connect an existing cluster, and the files that each of them needs (`gpucost manifests render --for`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpucost_cli.manifests.gpu_exporters import GPU_EXPORTERS, OPERATOR_VALUES_FILE

_GPU_EXPORTER = (OPERATOR_VALUES_FILE, *(exporter.values_file for exporter in GPU_EXPORTERS))
_EXPORTERS = ("helm/kube-state-metrics.yaml", *_GPU_EXPORTER)
_COLLECTOR_ROLE = ("aws/collector-role.yaml", "aws/collector-role.parameters.json")
QUERY_ROLE = ("aws/query-role.yaml", "aws/query-role.parameters.json")
"""Written if the settings name a role (`prometheus.role_arn`)."""
_AWS = (*_COLLECTOR_ROLE, *QUERY_ROLE)
STACK = "kube-prometheus-stack"
TARGETS: Mapping[str, Sequence[str]] = {
    STACK: ("helm/kube-prometheus-stack.yaml", *_GPU_EXPORTER, *_AWS, "env.sh"),
    "amp-scraper": ("collection/amp-scraper.yaml", *_EXPORTERS, *QUERY_ROLE, "env.sh"),
    "otel-collector": ("collection/access.yaml", "collection/otel-collector.yaml", *_EXPORTERS, *_AWS, "env.sh"),
    "prometheus-agent": ("collection/access.yaml", "collection/prometheus-agent.yaml", *_EXPORTERS, *_AWS, "env.sh"),
    "prometheus": ("collection/scrape-configs.yaml", *_EXPORTERS, "env.sh"),
    "other-servers": ("collection/scrape-configs.yaml", *_EXPORTERS, "env.sh"),
}
"""The files of each way. `other-servers` is VictoriaMetrics, Mimir and Thanos."""
SERVE, SERVE_FILE = "serve", "serve/serve.yaml"
"""Another value of `--for`, which connects no cluster, and its file."""
AMP_TARGETS = frozenset(TARGETS) - {STACK, "prometheus", "other-servers"}
"""Ways whose collector always writes to a workspace of Amazon Managed Service for Prometheus.

kube-prometheus-stack writes to it if the settings query it; otherwise they query the Prometheus of the stack.
"""
PAYER_POLICY = "workloads/payer-policy.yaml"
"""Written for every cluster if the settings charge pods by their labels."""
ONLY_FOR_EXISTING_CLUSTERS = frozenset(("helm/kube-prometheus-stack.yaml", OPERATOR_VALUES_FILE, *_COLLECTOR_ROLE))
"""Files that a new cluster does not need: eksctl creates the role, and `gpu-operator.yaml` has the same block."""

_OPERATOR_LIMITS = {
    "sample_limit": "sampleLimit",
    "label_limit": "labelLimit",
    "label_name_length_limit": "labelNameLengthLimit",
    "label_value_length_limit": "labelValueLengthLimit",
}
"""The limits of a scrape that the chart passes on to a PodMonitor. It has none of the response's size."""


def pod_monitors(scrape_configs: Sequence[Mapping[str, Any]], interval_seconds: int) -> list[dict[str, Any]]:
    """Return the PodMonitors of kube-prometheus-stack that scrape the same pods as a scrape configuration.

    kube-state-metrics is left out, because the stack has it. So are the labels that name the cluster, because the stack
    adds them as external labels, and the rules of exporters that drop metrics, because dashboards may query them there.
    """
    return [
        _pod_monitor(scrape_config, interval_seconds)
        for scrape_config in scrape_configs
        if scrape_config["job_name"] != "kube-state-metrics"
    ]


def _pod_monitor(scrape_config: Mapping[str, Any], interval_seconds: int) -> dict[str, Any]:
    rules = [rule for rule in scrape_config["relabel_configs"] if "replacement" not in rule]
    namespaces = next((rule["regex"].split("|") for rule in rules if _selects_namespaces(rule)), None)
    endpoint: dict[str, Any] = {"interval": f"{interval_seconds}s", "honorLabels": scrape_config["honor_labels"]}
    relabelings = [
        *(_operator_rule(rule) for rule in rules),
        {"targetLabel": "job", "replacement": scrape_config["job_name"]},
    ]
    if scrape_config["honor_labels"]:  # labels with these names are those of the workload
        relabelings.append({"regex": "namespace|pod|container", "action": "labeldrop"})
    else:  # pods of any kind, which the stack scraped for its dashboards already if they need it
        endpoint["metricRelabelings"] = [_operator_rule(rule) for rule in scrape_config["metric_relabel_configs"]]
    limits = {name: scrape_config[limit] for limit, name in _OPERATOR_LIMITS.items() if limit in scrape_config}
    return {
        "name": f"gpucost-{scrape_config['job_name']}",
        **limits,
        "namespaceSelector": {"matchNames": namespaces} if namespaces else {"any": True},
        "selector": {},
        "podMetricsEndpoints": [{**endpoint, "relabelings": relabelings}],
    }


def _selects_namespaces(rule: Mapping[str, Any]) -> bool:
    return rule.get("source_labels") == ["__meta_kubernetes_namespace"] and rule.get("action") == "keep"


def _operator_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a relabeling rule with the names of the Prometheus operator, for example `sourceLabels`."""
    names = {"source_labels": "sourceLabels", "target_label": "targetLabel"}
    return {names.get(key, key): value for key, value in rule.items()}
