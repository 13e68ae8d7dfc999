"""Which metrics the dashboards and the rules ask for; read off `dashboards/`, as it is loaded into Grafana and AMP."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from devstack.template import REPOSITORY
from gpucost.core.metering.signals import SIGNALS
from gpucost_cli.rules.alerting import of_template

FOLDER = REPOSITORY / "dashboards"
RULES = FOLDER / "amp-rules.yaml"
_EXPORTED = re.compile(r"(?<![\w:])(?:DCGM_FI|dcgm|kube|karpenter|neuron|neuroncore|execution)_\w+(?!\w*:)")
_LABELS = re.compile(r'"(?:[^"\\]|\\.)*"|(?:by|on|ignoring|without|group_left|group_right) ?\([^()]*\)')


def expressions(dashboard: Any) -> Iterator[str]:
    """Every PromQL expression of a dashboard's panels."""
    for panel in panels(dashboard):
        yield from (target["expr"] for target in panel.get("targets", ()) if "expr" in target)


def panels(dashboard: Any) -> Iterator[Any]:
    """Every panel of a dashboard, within its rows as well."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", ())


def dashboards() -> dict[str, Any]:
    """The dashboards as committed, by the names of their files."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


@cache
def metrics() -> frozenset[str]:
    """Exporters' metrics that any dashboard or rule names; signals of utilization are named by their pattern."""
    asked = [one for dashboard in dashboards().values() for one in expressions(dashboard)]
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["Resources"]["Rules"]["Properties"]["Data"]
    groups = [*yaml.safe_load(rules)["groups"], *of_template()]
    asked += [rule["expr"] for group in groups for rule in group["rules"]]
    found = {name for one in asked for name in _EXPORTED.findall(_LABELS.sub("", one))}
    return frozenset(found | {name for name in SIGNALS if any(name in one for one in asked)})
