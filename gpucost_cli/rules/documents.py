"""Renders the rules of a settings document in the formats of Prometheus, its operator and AMP."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import yaml

from gpucost.core.attribution import business_units_at
from gpucost.core.errors import InvalidInputError
from gpucost.core.hour_record import ESTIMATED_SOURCES
from gpucost.core.hours import format_timestamp
from gpucost.core.metering.signals import signals_by_preference
from gpucost.pipeline.attribute import business_units
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost.sources.prometheus.metrics_sources import TrustedSeries
from gpucost.sources.prometheus.queries import Queries
from gpucost_cli.rules import alerting
from gpucost_cli.rules.inference import ModelRules
from gpucost_cli.rules.promql import Rule
from gpucost_cli.rules.recording import RecordingRules

EVALUATION_INTERVAL = "1m"
RULE_GROUPS_NAMESPACE = "gpucost-recording"
"""Of AMP (`AWS::APS::RuleGroupsNamespace`); the stack's id follows it."""
"""Prefix of the rule groups namespace in AMP, before the stack's id. The template's alerts use `gpucost-`."""
MAX_RULES = 20
"""Rules in a group, by AMP's default quota. The first group of a cluster is queried by the others."""
Groups = Sequence[Mapping[str, Any]]
FORMATS = ("prometheus", "operator", "cloudformation")


def select_clusters(settings: CoreSettings, name: str | None) -> Sequence[ClusterSettings]:
    """Return the cluster of that name, or all clusters, which must then share one Prometheus.

    Raises:
        InvalidInputError: the cluster is not in the settings, or no cluster is named and they use several workspaces.
    """
    if name is not None:
        cluster = settings.cluster(name)
        if cluster is None:
            raise InvalidInputError(
                f"cluster {name!r} is not in the settings. Clusters there: {_cluster_names(settings)}"
            )
        return [cluster]
    if len({cluster.prometheus.url for cluster in settings.clusters}) > 1:
        raise InvalidInputError(
            f"the clusters use several workspaces. Pass --cluster with one of: {_cluster_names(settings)}"
        )
    return settings.clusters


def _cluster_names(settings: CoreSettings) -> str:
    return ", ".join(cluster.name for cluster in settings.clusters)


def recording_groups(settings: CoreSettings, clusters: Sequence[ClusterSettings], now: datetime) -> Groups:
    """Build the groups of each cluster: pods and nodes, their sums, and models where inference servers are read."""
    groups = []
    for cluster in clusters:
        signals = signals_by_preference(settings.utilization.signal, settings.utilization.scale)
        units = business_units_at(business_units(settings), now)
        queries = Queries(cluster.selector, [], trusted_series=TrustedSeries.from_settings(cluster.sources))
        rules = RecordingRules(cluster.name, queries, signals, units, cluster.slices_per_gpu)
        labels = {"cluster": cluster.name}
        parts: dict[str, Iterable[Rule]] = {"pods": rules.base_rules(), "sums": rules.sum_rules()}
        if settings.inference.enabled:
            parts["models"] = ModelRules(cluster.name, queries, settings.inference).rules()
        for part, part_rules in parts.items():
            name = f"gpucost-{cluster.name}-{part}"
            groups.append(
                {"name": name, "interval": EVALUATION_INTERVAL, "rules": [rule.to_dict(labels) for rule in part_rules]}
            )
    return groups


def alerting_groups(*, include_template: bool) -> Groups:
    """Build the groups of alerts: the one on recorded series, and those of the stack's template."""
    low = {"name": "gpucost-use", "rules": [alerting.low_utilization_alert()]}
    return [low, *(alerting.template_groups() if include_template else ())]


def render_groups(output_format: str, groups: Groups) -> str:
    """Render a file for Prometheus, an object for its operator, or a template that loads rules into AMP."""
    rules = {"groups": [dict(group) for group in groups]}
    if output_format == "operator":
        metadata = {"name": "gpucost", "labels": {"app.kubernetes.io/part-of": "gpucost"}}
        return _to_yaml(
            {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": rules}
        )
    if output_format == "cloudformation":
        return _to_yaml(_cloudformation_template(_to_yaml(rules)))
    return _to_yaml(rules)


def limitations(settings: CoreSettings, now: datetime) -> list[str]:
    """List what the rules cannot express of these settings, in sentences. The ledger's figures contain it."""
    sentences = []
    average_sources = [source for source in settings.utilization.sources if source in ESTIMATED_SOURCES]
    if average_sources:
        sentences.append(f"utilization from the sources {', '.join(average_sources)} counts as unmeasured in the rules")
    if missing := [source for source in ("pod", "shared") if source not in settings.utilization.sources]:
        sentences.append(f"the rules also measure by {', '.join(missing)}, which utilization.sources leaves out")
    if settings.instance_types:
        sentences.append(
            "the rules count the GPUs of instance_types by the hardware catalog, else by capacity or dcgm-exporter"
        )
    if settings.nvlink_domains:
        sentences.append("GPUs that nvlink_domains strands count as unallocated in the rules")
    for unit in settings.business_units:
        if unit.distribute:
            sentences.append(f"business unit {unit.name!r} keeps in the rules the cost that the ledger distributes")
        if unit.since is not None and unit.since > now:
            sentences.append(
                f"business unit {unit.name!r} changes at {format_timestamp(unit.since)}: generate the rules again then"
            )
    return sentences


def _cloudformation_template(data: str) -> Mapping[str, Any]:
    arn = {"Type": "String", "Description": "ARN of the AMP workspace that gets the rules."}
    stack_id = {"Fn::Select": [2, {"Fn::Split": ["/", {"Ref": "AWS::StackId"}]}]}
    name = {"Fn::Join": ["-", [RULE_GROUPS_NAMESPACE, stack_id]]}  # several stacks may share a workspace
    rules = {
        "Type": "AWS::APS::RuleGroupsNamespace",
        "Properties": {"Workspace": {"Ref": "WorkspaceArn"}, "Name": name, "Data": data},
    }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "GPU cost attribution - recording rules of gpucost manifests rules, deployed alone or nested",
        "Parameters": {"WorkspaceArn": arn},
        "Resources": {"Rules": rules},
    }


class _BlockTextDumper(yaml.SafeDumper):
    """Dumps texts of several lines as literal blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockTextDumper.add_representer(str, _represent_text)


def _to_yaml(content: Mapping[str, Any]) -> str:
    text: str = yaml.dump(content, Dumper=_BlockTextDumper, sort_keys=False, width=110, allow_unicode=True)
    return text
