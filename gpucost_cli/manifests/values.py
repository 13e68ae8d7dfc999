"""What the kit's files are filled with: from the settings document what it says, from the parameters the rest."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from devstack.template import REPOSITORY
from gpucost.core.errors import InvalidInputError
from gpucost.core.metering.kubernetes_labels import all_node_labels
from gpucost.settings import BusinessUnitSettings, ClusterSettings, Settings
from gpucost.sources.prometheus.queries import quote
from gpucost.sources.prometheus.source_selectors import SOURCE_NAMES
from gpucost_cli.doctor.labels import Needs, allow_lists, needs
from gpucost_cli.manifests import series
from gpucost_cli.manifests.parameters import Parameters, TenantParameters
from gpucost_cli.placeholders import refuse_placeholders

VERSIONS = REPOSITORY / "cluster" / "versions.yaml"
_WORKSPACE = re.compile(
    r"^(?P<address>https://aps-workspaces\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?"
    r"/workspaces/(?P<id>ws-[A-Za-z0-9-]+))/?$"
)
_EKS_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")


def values(settings: Settings, parameters: Parameters) -> dict[str, Any]:
    """Everything that the files name, each value from the one place that says it.

    Raises:
        InvalidInputError: settings and parameters do not fit together, or hold an example's placeholder; says how.
    """
    refuse_placeholders(settings, "settings")
    refuse_placeholders(parameters, "parameters")
    cluster = _cluster(settings, parameters)
    workspace = _workspace(cluster)
    region = workspace["region"]
    outside = [zone for zone in parameters.zones if zone[:-1] != region]
    if outside:
        raise InvalidInputError(f"parameters: zone {outside[0]} is not in {region}, where cluster {cluster.name} is")
    need = needs(settings)
    partition = "aws-cn" if region.startswith("cn-") else "aws-us-gov" if "gov" in region else "aws"
    account = parameters.account_id
    _check_jobs(cluster)
    labels = dict(cluster.selector) or {"cluster": cluster.name}
    if any("$" in value for value in labels.values()):
        raise InvalidInputError(
            f"cluster {cluster.name}: a selector with a dollar sign cannot be written by relabelling"
        )
    return {
        "cluster": {
            "name": cluster.name,
            "region": region,
            "partition": partition,
            "account": account,
            "version": parameters.kubernetes_version,
            "zones": list(parameters.zones),
            "labels": labels,
            "matchers": ",".join(f"{name}={quote(value)}" for name, value in sorted(labels.items())),
        },
        "environment": parameters.environment,
        "workspace": {
            **workspace,
            "arn": f"arn:{partition}:aps:{region}:{account}:workspace/{workspace['id']}",
            "remote_write": f"{workspace['address']}/api/v1/remote_write",
        },
        "query_role": _query_role(cluster, parameters),
        "collection": parameters.collection.model_dump(),
        "keep": {
            "kube_state_metrics": series.of_kube_state_metrics(need, dashboards=parameters.collection.dashboards),
            "gpus": series.of_gpus(dashboards=parameters.collection.dashboards),
            "neuron": series.of_neuron(dashboards=parameters.collection.dashboards),
            "karpenter": series.of_karpenter(),
            "families": series.families(need, dashboards=parameters.collection.dashboards),
            "counters": series.COUNTERS,
        },
        "kube_state_metrics": {
            "labels": allow_lists(need, all_node_labels()),
            "objects": _objects(need, dashboards=parameters.collection.dashboards),
        },
        "gpu_group": parameters.gpu_group.model_dump(),
        "system_nodes": dict(parameters.system_nodes),
        "spot_instance_types": list(parameters.spot_instance_types),
        "tenants": [_tenant(settings, one) for one in parameters.tenants],
        "versions": yaml.safe_load(VERSIONS.read_text()),
    }


def _cluster(settings: Settings, parameters: Parameters) -> ClusterSettings:
    cluster = settings.cluster(parameters.cluster)
    if cluster is None:
        known = ", ".join(one.name for one in settings.clusters)
        raise InvalidInputError(f"parameters: cluster {parameters.cluster!r} is none of the settings' ({known})")
    if not _EKS_NAME.match(cluster.name):
        raise InvalidInputError(f"cluster {cluster.name!r}: EKS takes letters, digits, hyphens and underscores only")
    if cluster.prometheus.auth != "sigv4":
        raise InvalidInputError(
            f"cluster {cluster.name}: the kit writes to Amazon Managed Service for Prometheus; its settings need "
            "prometheus: {url: https://aps-workspaces.<region>.amazonaws.com/workspaces/<id>, auth: sigv4, region: …}"
        )
    return cluster


def _check_jobs(cluster: ClusterSettings) -> None:
    """Refuse settings that would read none of what the collector scrapes.

    Raises:
        InvalidInputError: a source's job is another than the collector's.
    """
    for source in SOURCE_NAMES:
        matchers = getattr(cluster.sources, source) or {}
        job = source.replace("_", "-")
        if job not in matchers.get("job", (job,)):
            raise InvalidInputError(
                f"cluster {cluster.name}: sources.{source} names job {', '.join(matchers['job'])}, and the kit's "
                f"collector scrapes it as job {job}; name that one, or both"
            )


def _workspace(cluster: ClusterSettings) -> dict[str, str]:
    found = _WORKSPACE.match(cluster.prometheus.url)
    if found is None:
        raise InvalidInputError(
            f"cluster {cluster.name}: {cluster.prometheus.url} is not the address of a workspace like "
            "https://aps-workspaces.<region>.amazonaws.com/workspaces/<id>"
        )
    if found["region"] != cluster.prometheus.region:
        raise InvalidInputError(
            f"cluster {cluster.name}: its workspace is in {found['region']}, its region is {cluster.prometheus.region}"
        )
    return {"address": found["address"], "region": found["region"], "id": found["id"]}


def _query_role(cluster: ClusterSettings, parameters: Parameters) -> dict[str, str]:
    """The role that the service assumes; blank where it asks the workspace as itself."""
    arn = cluster.prometheus.role_arn or ""
    if arn and arn.split(":")[4] != parameters.account_id:
        raise InvalidInputError(
            f"cluster {cluster.name}: role {arn} is of another account than account_id {parameters.account_id}"
        )
    return {
        "arn": arn,
        "name": arn.rpartition("/")[2],
        "external_id": cluster.prometheus.external_id or "",
        "deployment_account": parameters.deployment_account_id or parameters.account_id,
        "deployment_stack": parameters.deployment_stack,
    }


def _objects(need: Needs, *, dashboards: bool) -> list[str]:
    """The kinds of objects that kube-state-metrics watches."""
    optional = [("namespaces", bool(need.of_namespaces)), ("resourcequotas", dashboards)]
    return sorted(["jobs", "nodes", "pods", "replicasets", *(kind for kind, is_needed in optional if is_needed)])


def _tenant(settings: Settings, tenant: TenantParameters) -> Mapping[str, Any]:
    unit = _unit(settings.business_units, tenant)
    return {
        "namespace": tenant.namespace,
        "pods": tenant.pods,
        "quota": tenant.quota,
        "business_unit": unit.name if unit else tenant.namespace,
        "namespace_labels": dict(unit.namespace_labels) if unit else {},
        "pod_labels": {**(unit.pod_labels if unit else {}), **tenant.labels},
    }


def _unit(units: Sequence[BusinessUnitSettings], tenant: TenantParameters) -> BusinessUnitSettings | None:
    if tenant.business_unit is None:
        return None
    found = [unit for unit in units if unit.name == tenant.business_unit]
    if not found:
        known = ", ".join(dict.fromkeys(unit.name for unit in units)) or "none"
        raise InvalidInputError(
            f"parameters: tenant {tenant.namespace}: business unit {tenant.business_unit!r} is none of the settings' "
            f"({known})"
        )
    return found[-1]
