"""Alerting rules: those that the template loads into AMP, and the one that reads what the recording rules recorded."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from devstack.template import REPOSITORY
from gpucost_cli.rules.promql import folded

IDLE_BELOW = 0.1
IDLE_MINUTES = 30
_TEMPLATE = REPOSITORY / "dashboards" / "amp-alerts.yaml"
_MINUTES = "Minutes"


class _TemplateLoader(yaml.SafeLoader):
    """Reads past CloudFormation's functions: of `!Sub` and its like only the text."""


def _plain(loader: yaml.SafeLoader, _suffix: str, node: yaml.Node) -> object:
    return node.value if isinstance(node, yaml.ScalarNode) else None


_TemplateLoader.add_multi_constructor("!", _plain)


@cache
def of_template() -> Sequence[Mapping[str, Any]]:
    """The groups of `dashboards/amp-alerts.yaml`, which the stack nests, with the parameter's default filled in.

    They are written there and nowhere else: node pools near their limit and failed provisioning, by the names of
    every version of Karpenter, and quotas.
    """
    template = yaml.load(_TEMPLATE.read_text(encoding="utf-8"), Loader=_TemplateLoader)
    text: str = template["Resources"]["Rules"]["Properties"]["Data"]
    minutes = str(template["Parameters"][_MINUTES]["Default"])
    groups: list[Mapping[str, Any]] = yaml.safe_load(text.replace(f"${{{_MINUTES}}}", minutes))["groups"]
    return groups


def low_utilization() -> Mapping[str, Any]:
    """GPUs held by pods that use less than a tenth of them, by namespace: a mean of busy and idle pods hides both."""
    idle = f"avg_over_time(pod:gpucost_utilization:ratio[{IDLE_MINUTES}m]) < {IDLE_BELOW}"
    pods = f"pod:gpucost_allocated_gpus and on (cluster, namespace, pod, uid) ({idle})"
    return {
        "alert": "LowGPUUtilization",
        "expr": folded(f"sum by (cluster, business_unit, namespace) ({pods}) > 0"),
        "for": "1h",
        "labels": {"severity": "info", "gpucost": "true"},
        "annotations": {
            "summary": f"{{{{ $value | humanize }}}} GPUs are held by pods that use less than {IDLE_BELOW:.0%} of them"
        },
    }
