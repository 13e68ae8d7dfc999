"""Builds the variables of the templates in `cluster/` from the settings document and the parameter file."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from gpucost.core.errors import InvalidInputError
from gpucost.core.metering.accelerators import ACCELERATORS
from gpucost.core.metering.kubernetes_labels import GPU_CLIQUE_LABEL, all_node_labels
from gpucost.settings import BusinessUnitSettings, ClusterSettings, CoreSettings
from gpucost.settings.metrics_sources import EXPORTERS
from gpucost.sources.prometheus.metrics_sources import METRICS_SOURCES
from gpucost.sources.prometheus.queries import quote
from gpucost_cli.doctor.labels import allow_lists, required_labels
from gpucost_cli.manifests import series
from gpucost_cli.manifests.gpu_exporters import GPU_EXPORTERS, node_selector_terms
from gpucost_cli.manifests.parameters import ExistingClusterParameters, MigSliceNamespaceParameters, Parameters
from gpucost_cli.manifests.targets import AMP_TARGETS, STACK
from gpucost_devstack.template import REPOSITORY

VERSIONS = REPOSITORY / "cluster" / "versions.yaml"
_WORKSPACE = re.compile(
    r"^(?P<address>https://aps-workspaces\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?"
    r"/workspaces/(?P<id>ws-[A-Za-z0-9-]+))/?$"
)
_COLLECTOR_NAMESPACE, _COLLECTOR_SERVICE_ACCOUNT = "observability", "amp-ingest"
"""Of the collectors in `collection/`."""
_MAX_ROLE_NAME = 64
_EKS_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")


def template_values(settings: CoreSettings, parameters: Parameters) -> dict[str, Any]:
    """Return all variables of the templates, for a new cluster.

    Raises:
        InvalidInputError: settings and parameters contradict each other.
    """
    cluster = _cluster_of(settings, parameters)
    workspace = _workspace_of(cluster)
    region = workspace["region"]
    outside_zones = [zone for zone in parameters.zones if zone[:-1] != region]
    if outside_zones:
        raise InvalidInputError(
            f"parameters: zone {outside_zones[0]} is not in {region}, the region of cluster {cluster.name}. Name zones "
            f"of {region}"
        )
    values = existing_cluster_values(settings, parameters, "otel-collector")
    return {
        **values,
        "cluster": {**values["cluster"], "version": parameters.kubernetes_version, "zones": list(parameters.zones)},
        "environment": parameters.environment,
        "gpu_group": parameters.gpu_group.model_dump(),
        "spot_instance_types": list(parameters.spot_instance_types),
        "tenants": [_namespace_values(settings, tenant) for tenant in parameters.tenants],
    }


def existing_cluster_values(
    settings: CoreSettings, parameters: ExistingClusterParameters, target: str
) -> dict[str, Any]:
    """Return the variables of the templates that a target of `--for` needs.

    Raises:
        InvalidInputError: settings and parameters contradict each other.
    """
    cluster = _cluster_of(settings, parameters)
    _check_jobs(cluster)
    labels = dict(cluster.selector) or {"cluster": cluster.name}
    if any("$" in value for value in labels.values()):
        raise InvalidInputError(
            f"cluster {cluster.name}: relabeling cannot write a selector with a dollar sign. Choose another label value"
        )
    required = required_labels(settings)
    inference_metrics = settings.inference.collected_metrics()
    dashboards = parameters.collection.dashboards
    patterns = {
        series.KUBE_STATE_METRICS: series.kube_state_metrics_pattern(required, dashboards=dashboards),
        "dcgm-exporter": series.dcgm_exporter_pattern(dashboards=dashboards),
        **{
            accelerator.exporter: series.accelerator_pattern(accelerator, dashboards=dashboards)
            for accelerator in ACCELERATORS
        },
        **series.other_patterns(),
        **({"karpenter": series.karpenter_pattern()} if dashboards else {}),
    }
    writes_to_amp = target in AMP_TARGETS or (target == STACK and cluster.prometheus.auth == "sigv4")
    aws = _aws_values(cluster, parameters, target) if writes_to_amp else {"workspace": {}, "aws": {}}
    return {
        **aws,
        "cluster": {
            **aws["aws"],
            "name": cluster.name,
            "labels": labels,
            "external_labels": {"cluster": cluster.name, **labels},
            "matchers": ",".join(f"{name}={quote(value)}" for name, value in sorted(labels.items())),
        },
        "collection": parameters.collection.model_dump(),
        "gpu_exporters": {
            exporter.pools: {
                "release": exporter.release,
                "namespace": exporter.namespace,
                "values_file": exporter.values_file,
                "node_selector_terms": node_selector_terms(exporter.pools, parameters.collection.shared_mig_profiles),
            }
            for exporter in GPU_EXPORTERS
        },
        "exporters": [
            {
                "source": exporter.source,
                "job": exporter.job,
                "labels": [f"__meta_kubernetes_{name}" for name in exporter.discovery_labels],
                "label_values": exporter.discovery_values,
                "names_no_node": exporter.names_no_node,
            }
            for exporter in EXPORTERS
            if exporter.discovery_labels
        ],
        "keep": {
            "kube_state_metrics": patterns[series.KUBE_STATE_METRICS],
            "gpus": patterns["dcgm-exporter"],
            "by_job": patterns,
            "karpenter": series.karpenter_pattern(),
            "inference_servers": series.inference_pattern(inference_metrics),
            "remote_write": series.remote_write_pattern(patterns, inference_metrics),
            "families": series.kube_state_metrics_families(required, dashboards=dashboards),
            "counters": series.dcgm_counters(settings.utilization.signal),
        },
        "kube_state_metrics": {
            "labels": allow_lists(required, [*all_node_labels(), GPU_CLIQUE_LABEL]),
            "objects": _watched_object_kinds(dashboards=dashboards),
        },
        "payer_labels": sorted({label for unit in settings.business_units for label in unit.pod_labels}),
        "inference": settings.inference.model_dump(include={"enabled", "namespace_label", "pod_label"}),
        "kube_prometheus_stack": parameters.kube_prometheus_stack.model_dump(),
        "system_nodes": dict(parameters.system_nodes),
        "versions": yaml.safe_load(VERSIONS.read_text(encoding="utf-8")),
    }


def _cluster_of(settings: CoreSettings, parameters: ExistingClusterParameters) -> ClusterSettings:
    names = ", ".join(cluster.name for cluster in settings.clusters)
    if parameters.cluster is None and len(settings.clusters) > 1:
        raise InvalidInputError(
            f"parameters: cluster: required, because the settings have several clusters. Set it to one of {names}"
        )
    cluster = settings.cluster(parameters.cluster) if parameters.cluster else settings.clusters[0]
    if cluster is None:
        raise InvalidInputError(
            f"parameters: cluster {parameters.cluster!r} is not in the settings. Clusters there: {names}"
        )
    if not _EKS_NAME.match(cluster.name):
        raise InvalidInputError(f"cluster {cluster.name!r}: EKS allows only letters, digits, hyphens and underscores")
    return cluster


def _aws_values(
    cluster: ClusterSettings, parameters: ExistingClusterParameters, target: str
) -> dict[str, dict[str, Any]]:
    """Return the variables of collectors that write to AMP: the workspace, and the role to write."""
    workspace = _workspace_of(cluster)
    account, region = parameters.account_id, workspace["region"]
    if account is None:
        raise InvalidInputError(
            "parameters: account_id: required, because the collector writes to a workspace of AMP. Set it to the "
            "account of the cluster; aws sts get-caller-identity --query Account prints it"
        )
    partition = "aws-cn" if region.startswith("cn-") else "aws-us-gov" if "gov" in region else "aws"
    stack = parameters.kube_prometheus_stack
    role_name = f"gpucost-collector-{cluster.name}"[:_MAX_ROLE_NAME]
    has_stack = target == STACK
    return {
        "aws": {"region": region, "partition": partition, "account": account},
        "workspace": {
            **workspace,
            "arn": f"arn:{partition}:aps:{region}:{account}:workspace/{workspace['id']}",
            "remote_write": f"{workspace['address']}/api/v1/remote_write",
        },
        "query_role": _query_role(cluster, parameters),
        "collector_role": {
            "name": role_name,
            "arn": f"arn:{partition}:iam::{account}:role/{role_name}",
            "trust": parameters.collector_role.trust,
            "oidc_provider": parameters.collector_role.oidc_provider or "",
            "namespace": stack.namespace if has_stack else _COLLECTOR_NAMESPACE,
            "service_account": stack.service_account if has_stack else _COLLECTOR_SERVICE_ACCOUNT,
        },
    }


def _check_jobs(cluster: ClusterSettings) -> None:
    """Refuse settings that select no series of the collector.

    Raises:
        InvalidInputError: a source names another job than the collector.
    """
    for metrics_source in METRICS_SOURCES:
        matchers = getattr(cluster.sources, metrics_source) or {}
        job = metrics_source.replace("_", "-")
        if job not in matchers.get("job", (job,)):
            raise InvalidInputError(
                f"cluster {cluster.name}: sources.{metrics_source} names job {', '.join(matchers['job'])}, but the "
                f"collector scrapes it as job {job}. Add {job} to sources.{metrics_source}.job"
            )


def _workspace_of(cluster: ClusterSettings) -> dict[str, str]:
    if cluster.prometheus.auth != "sigv4":
        raise InvalidInputError(
            f"cluster {cluster.name}: the manifests write to Amazon Managed Service for Prometheus. Set "
            "prometheus: {url: https://aps-workspaces.<region>.amazonaws.com/workspaces/<id>, auth: sigv4, region: …}, "
            "or render with --for prometheus or --for other-servers"
        )
    match = _WORKSPACE.match(cluster.prometheus.url)
    if match is None:
        raise InvalidInputError(
            f"cluster {cluster.name}: {cluster.prometheus.url} is not the address of an AMP workspace, such as "
            "https://aps-workspaces.<region>.amazonaws.com/workspaces/<id>"
        )
    if match["region"] != cluster.prometheus.region:
        raise InvalidInputError(
            f"cluster {cluster.name}: its workspace is in {match['region']}, but its region is "
            f"{cluster.prometheus.region}. Set prometheus.region to {match['region']}"
        )
    return {"address": match["address"], "region": match["region"], "id": match["id"]}


def _query_role(cluster: ClusterSettings, parameters: ExistingClusterParameters) -> dict[str, str | None]:
    """Return the role that gpucost assumes to query; the name is empty if it queries under its own role."""
    arn = cluster.prometheus.role_arn or ""
    if arn and arn.split(":")[4] != parameters.account_id:
        raise InvalidInputError(
            f"cluster {cluster.name}: role {arn} is in another account than account_id {parameters.account_id}. Set "
            "account_id to the role's account, or name a role of account_id"
        )
    return {
        "arn": arn,
        "name": arn.rpartition("/")[2],
        "external_id": cluster.prometheus.external_id or "",
        "deployment_account": parameters.deployment_account_id or parameters.account_id,
        "deployment_stack": parameters.deployment_stack,
    }


def _watched_object_kinds(*, dashboards: bool) -> list[str]:
    """List the kinds of objects that kube-state-metrics watches."""
    return sorted(["jobs", "namespaces", "nodes", "pods", "replicasets", *(["resourcequotas"] if dashboards else [])])


def _namespace_values(settings: CoreSettings, tenant: MigSliceNamespaceParameters) -> Mapping[str, Any]:
    unit = _business_unit_of(settings.business_units, tenant)
    return {
        "namespace": tenant.namespace,
        "pods": tenant.pods,
        "quota": tenant.quota,
        "business_unit": unit.name if unit else tenant.namespace,
        "namespace_labels": dict(unit.namespace_labels) if unit else {},
        "pod_labels": {**(unit.pod_labels if unit else {}), **tenant.labels},
    }


def _business_unit_of(
    units: Sequence[BusinessUnitSettings], tenant: MigSliceNamespaceParameters
) -> BusinessUnitSettings | None:
    if tenant.business_unit is None:
        return None
    matching_units = [unit for unit in units if unit.name == tenant.business_unit]
    if not matching_units:
        unit_names = ", ".join(dict.fromkeys(unit.name for unit in units)) or "none"
        raise InvalidInputError(
            f"parameters: tenant {tenant.namespace}: business unit {tenant.business_unit!r} is not in the settings. "
            f"Business units there: {unit_names}"
        )
    return matching_units[-1]
