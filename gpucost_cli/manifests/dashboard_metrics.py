"""Lists the metrics that dashboards and rules query, from the files of `dashboards/` that Grafana and AMP load."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from gpucost.core.metering.signals import SIGNALS
from gpucost_cli.rules.alerting import template_groups
from gpucost_devstack.template import REPOSITORY

FOLDER = REPOSITORY / "dashboards"
RULES_FILE = FOLDER / "amp-rules.yaml"
_EXPORTED_METRIC = re.compile(r"(?<![\w:])(?:DCGM_FI|dcgm|kube|karpenter|neuron|neuroncore|execution)_\w+(?!\w*:)")
_LABELS = re.compile(r'"(?:[^"\\]|\\.)*"|(?:by|on|ignoring|without|group_left|group_right) ?\([^()]*\)')


def expressions(dashboard: Any) -> Iterator[str]:
    """Yield every PromQL expression of a dashboard's panels."""
    for panel in panels(dashboard):
        yield from (target["expr"] for target in panel.get("targets", ()) if "expr" in target)


def panels(dashboard: Any) -> Iterator[Any]:
    """Yield every panel of a dashboard, those inside rows included."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", ())


def dashboards() -> dict[str, Any]:
    """Read the committed dashboards, by the names of their files without `.json`."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


@cache
def queried_metrics() -> frozenset[str]:
    """Return the exporters' metrics that a dashboard or rule queries. Rules query utilization signals by a pattern."""
    promql = [expression for dashboard in dashboards().values() for expression in expressions(dashboard)]
    rules = yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))["Resources"]["Rules"]["Properties"]["Data"]
    groups = [*yaml.safe_load(rules)["groups"], *template_groups()]
    promql += [rule["expr"] for group in groups for rule in group["rules"]]
    names = {name for expression in promql for name in _EXPORTED_METRIC.findall(_LABELS.sub("", expression))}
    return frozenset(names | {name for name in SIGNALS if any(name in expression for expression in promql)})
