"""Alerting rules: those of the CloudFormation template, and one that queries the recorded series."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from gpucost_cli.rules.promql import single_line
from gpucost_devstack.template import REPOSITORY

IDLE_UTILIZATION_LIMIT = 0.1
IDLE_MINUTES = 30
_TEMPLATE = REPOSITORY / "dashboards" / "amp-alerts.yaml"
_MINUTES = "Minutes"


class _TemplateLoader(yaml.SafeLoader):
    """Loads YAML with CloudFormation's functions; `!Sub` and the like become their text."""


def _construct_text(loader: yaml.SafeLoader, _suffix: str, node: yaml.Node) -> object:
    return node.value if isinstance(node, yaml.ScalarNode) else None


_TemplateLoader.add_multi_constructor("!", _construct_text)


@cache
def template_groups() -> Sequence[Mapping[str, Any]]:
    """Read the rule groups of `dashboards/amp-alerts.yaml`, with the default of its parameter.

    The stack nests that template, so the alerts are defined only there: node pools near their limit, failed
    provisioning (in the metric names of every version of Karpenter) and quotas.
    """
    template = yaml.load(_TEMPLATE.read_text(encoding="utf-8"), Loader=_TemplateLoader)
    text: str = template["Resources"]["Rules"]["Properties"]["Data"]
    minutes = str(template["Parameters"][_MINUTES]["Default"])
    groups: list[Mapping[str, Any]] = yaml.safe_load(text.replace(f"${{{_MINUTES}}}", minutes))["groups"]
    return groups


def low_utilization_alert() -> Mapping[str, Any]:
    """Build the alert on GPUs of pods that use less than a tenth of them.

    It compares each pod, because the mean of a namespace hides idle pods among busy ones.
    """
    idle = f"avg_over_time(pod:gpucost_utilization:ratio[{IDLE_MINUTES}m]) < {IDLE_UTILIZATION_LIMIT}"
    pods = f"pod:gpucost_allocated_gpus and on (cluster, namespace, pod, uid) ({idle})"
    return {
        "alert": "LowGPUUtilization",
        "expr": single_line(f"sum by (cluster, business_unit, namespace) ({pods}) > 0"),
        "for": "1h",
        "labels": {"severity": "info", "gpucost": "true"},
        "annotations": {
            "summary": "{{ $value | humanize }} GPUs are held by pods that use less than "
            f"{IDLE_UTILIZATION_LIMIT:.0%} of them"
        },
    }
