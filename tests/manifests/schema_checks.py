"""Checks objects and Helm values against the recorded schemas of Kubernetes, its operators and charts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from tests.manifests.rendered import example_parameters

SCHEMAS = Path(__file__).parent / "schemas"
CUSTOM: Mapping[str, Any] = {
    kind: {**schema, "$defs": document.get("$defs", {})}
    for name in ("karpenter", "eksctl", "others")
    for document in [yaml.safe_load((SCHEMAS / f"{name}.yaml").read_text())]
    for kind, schema in document.items()
    if kind != "$defs"
}
CHARTS: Mapping[str, Any] = yaml.safe_load((SCHEMAS / "charts.yaml").read_text())


def check(document: Any) -> None:
    """Validate an object; raise an error if it does not fit its schema."""
    if document["kind"] in CUSTOM:
        jsonschema.Draft202012Validator(CUSTOM[document["kind"]]).validate(document)
    else:
        version = example_parameters().kubernetes_version
        assert kubernetes_validate.validate(document, version, strict=True) == version


def foreign_keys(chart: Mapping[str, list[str]], values: Mapping[str, Any], section: str = "top") -> list[str]:
    """List the keys of values that the chart does not have."""
    keys = [f"{section}.{key}" for key in values if key not in chart[section]]
    for key, value in values.items():
        below = key if section == "top" else f"{section}.{key}"
        if below in chart and isinstance(value, dict):
            keys += foreign_keys(chart, value, below)
    return keys


STACK = yaml.safe_load((Path(__file__).parent / "schemas/kube-prometheus-stack.yaml").read_text())


def unknown_fields(values: Any) -> list[str]:
    """Return the keys of the stack's values that the chart or its CRDs do not have."""
    prometheus, fields = values["prometheus"], STACK["fields"]
    spec = prometheus["prometheusSpec"]
    parts: list[tuple[str, Any]] = [("podMonitor", monitor) for monitor in prometheus["additionalPodMonitors"]]
    for monitor in prometheus["additionalPodMonitors"]:
        parts.append(("namespaceSelector", monitor["namespaceSelector"]))
        for endpoint in monitor["podMetricsEndpoints"]:
            parts.append(("podMetricsEndpoint", endpoint))
            parts += [("relabeling", rule) for rule in endpoint["relabelings"]]
    for remote_write in spec["remoteWrite"]:
        parts += [("remoteWrite", remote_write), ("sigv4", remote_write["sigv4"])]
        parts.append(("queueConfig", remote_write["queueConfig"]))
        parts += [("relabeling", rule) for rule in remote_write["writeRelabelConfigs"]]
    unknown = foreign_keys(STACK["values"], values)
    unknown += [f"{kind}.{key}" for kind, part in parts for key in part if key not in fields[kind]]
    return unknown + [
        f"action {part['action']}"
        for kind, part in parts
        if kind == "relabeling" and part.get("action", "replace") not in fields["relabelingActions"]
    ]
