"""Rules of a settings document, in the forms in which Prometheus, its operator and AMP take them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import yaml

from gpucost.core.attribution import units_in_force
from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import format_instant
from gpucost.core.metering.signals import preference
from gpucost.pipeline.attribute import business_units
from gpucost.settings import ClusterSettings, Settings
from gpucost.sources.prometheus.queries import Queries
from gpucost.sources.prometheus.source_selectors import Sources
from gpucost_cli.rules import alerting
from gpucost_cli.rules.recording import RecordingRules

INTERVAL = "1m"
NAMESPACE = "gpucost-recording"
"""Of rule groups in AMP, before the stack's id; the template's alerts are in `gpucost-` and the id."""
MOST_RULES = 20
"""In a group, by AMP's default quota; groups of a cluster are two, of which the second reads the first."""
Groups = Sequence[Mapping[str, Any]]
FORMS = ("prometheus", "operator", "cloudformation")


def clusters_of(settings: Settings, name: str | None) -> Sequence[ClusterSettings]:
    """The cluster of that name, or all where none is named: they must be in one Prometheus.

    Raises:
        InvalidInputError: no such cluster, or clusters in several places.
    """
    if name is not None:
        found = settings.cluster(name)
        if found is None:
            raise InvalidInputError(f"the settings name no cluster {name!r}; there are: {_names(settings)}")
        return [found]
    if len({cluster.prometheus.url for cluster in settings.clusters}) > 1:
        raise InvalidInputError(f"the clusters are in several workspaces; say --cluster, one of: {_names(settings)}")
    return settings.clusters


def _names(settings: Settings) -> str:
    return ", ".join(cluster.name for cluster in settings.clusters)


def recording_groups(settings: Settings, clusters: Sequence[ClusterSettings], now: datetime) -> Groups:
    """Two groups for each cluster: pods and nodes, and their sums."""
    found = []
    for cluster in clusters:
        signals = preference(settings.utilization.signal, settings.utilization.scale)
        units = units_in_force(business_units(settings), now)
        queries = Queries(cluster.selector, [], sources=Sources.from_settings(cluster.sources))
        rules = RecordingRules(cluster.name, queries, signals, units, cluster.slices_per_gpu)
        labels = {"cluster": cluster.name}
        for part, some in (("pods", rules.bases()), ("sums", rules.sums())):
            name = f"gpucost-{cluster.name}-{part}"
            found.append({"name": name, "interval": INTERVAL, "rules": [one.document(labels) for one in some]})
    return found


def alerting_groups(*, of_template: bool) -> Groups:
    """The alert that reads recorded rules, and those of the template."""
    low = {"name": "gpucost-use", "rules": [alerting.low_utilization()]}
    return [low, *(alerting.of_template() if of_template else ())]


def document(form: str, groups: Groups) -> str:
    """A file for Prometheus, a custom resource for its operator, or a template that loads into an AMP workspace."""
    rules = {"groups": [dict(group) for group in groups]}
    if form == "operator":
        metadata = {"name": "gpucost", "labels": {"app.kubernetes.io/part-of": "gpucost"}}
        return _yaml({"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata,
                      "spec": rules})  # fmt: skip
    if form == "cloudformation":
        return _yaml(_template(_yaml(rules)))
    return _yaml(rules)


def notes(settings: Settings, now: datetime) -> list[str]:
    """What static rules leave out of what these settings say; the ledger knows it."""
    found = []
    lower = [rung for rung in settings.utilization.sources if rung in {"node", "cluster"}]
    if lower:
        found.append(f"use known by the rungs {', '.join(lower)} only counts as unmeasured in the rules")
    if missing := [rung for rung in ("pod", "shared") if rung not in settings.utilization.sources]:
        found.append(f"the rules measure by {', '.join(missing)} as well, which utilization.sources leaves out")
    for unit in settings.business_units:
        if unit.distribute:
            found.append(f"business unit {unit.name!r} keeps in the rules what the ledger passes on to others")
        if unit.since is not None and unit.since > now:
            found.append(
                f"business unit {unit.name!r} changes at {format_instant(unit.since)}: make the rules anew then"
            )
    return found


def _template(data: str) -> Mapping[str, Any]:
    arn = {"Type": "String", "Description": "ARN of the AMP workspace that gets the rules"}
    stack_id = {"Fn::Select": [2, {"Fn::Split": ["/", {"Ref": "AWS::StackId"}]}]}
    name = {"Fn::Join": ["-", [NAMESPACE, stack_id]]}  # stacks may share a workspace
    rules = {
        "Type": "AWS::APS::RuleGroupsNamespace",
        "Properties": {"Workspace": {"Ref": "WorkspaceArn"}, "Name": name, "Data": data},
    }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "GPU cost attribution - recording rules made by gpucost rules; stands alone or nested",
        "Parameters": {"WorkspaceArn": arn},
        "Resources": {"Rules": rules},
    }


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _yaml(content: Mapping[str, Any]) -> str:
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    return text
