"""Parses the parameter file of `gpucost manifests render`, which adds facts about a cluster to the settings."""

from collections.abc import Collection
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from gpucost.core.errors import InvalidInputError
from gpucost.settings.section import Section

Account = Annotated[str, StringConstraints(pattern=r"^\d{12}$")]
Zone = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
DnsLabel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?$")]
InstanceType = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$")]
LabelKey = Annotated[str, StringConstraints(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")]
LabelValue = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$")]
KubernetesVersion = Annotated[str, StringConstraints(pattern=r"^1\.\d{2}$")]
MigGeometryName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]
"""A configuration of MIG Manager: built in (`all-1g.5gb`) or defined in `gpu-operator-mig-mixed.yaml`."""
OidcProvider = Annotated[str, StringConstraints(pattern=r"^oidc\.eks\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/id/[A-Z0-9]+$")]


Namespaces = Annotated[tuple[DnsLabel, ...], Field(min_length=1)]


class ExporterNamespaces(Section):
    """Namespaces of the exporters. Pods of other namespaces are not scraped, whatever their labels say."""

    kube_state_metrics: Namespaces = ("kube-system",)
    dcgm_exporter: Namespaces = ("gpu-operator",)
    neuron_monitor: Namespaces = ("neuron-monitor", "kube-system")
    karpenter: Namespaces = ("kube-system", "karpenter")


class CollectionParameters(Section):
    """How collectors scrape metrics."""

    exporter_namespaces: ExporterNamespaces = ExporterNamespaces()

    scrape_interval_seconds: Annotated[int, Field(ge=30, le=120)] = 60
    """AMP's managed scraper accepts 30 or more. Above 120, short-lived pods are missed."""
    dashboards: bool = True
    """Whether to keep the series that only dashboards and alerting rules query."""


class CollectorRoleParameters(Section):
    """How the collector's service account gets the role to write."""

    trust: Literal["pod-identity", "irsa"] = "pod-identity"
    oidc_provider: OidcProvider | None = None
    """The cluster's OIDC issuer without `https://`, for irsa."""

    @model_validator(mode="after")
    def _check_provider(self) -> "CollectorRoleParameters":
        if (self.trust == "irsa") != (self.oidc_provider is not None):
            raise ValueError(
                "oidc_provider is required with trust: irsa, and only allowed there. aws eks describe-cluster --name "
                "NAME --query cluster.identity.oidc.issuer prints it; leave out https://"
            )
        return self


class KubePrometheusStackParameters(Section):
    """The Helm release of kube-prometheus-stack."""

    release: DnsLabel = "kube-prometheus-stack"
    namespace: DnsLabel = "monitoring"
    service_account: DnsLabel = "kube-prometheus-stack-prometheus"
    """Service account of the Prometheus pods."""


class GpuGroupParameters(Section):
    """The quick start's GPU node group: one GPU that pods share by time-slicing, or GPUs in MIG slices."""

    instance_type: InstanceType = "g4dn.xlarge"
    nodes: Annotated[int, Field(ge=1, le=100)] = 1
    time_slicing_replicas: Annotated[int, Field(ge=2, le=100)] = 7
    mig_geometry: MigGeometryName | None = None


class MigSliceNamespaceParameters(Section):
    """A namespace of the proof of concept that holds GPU slices."""

    namespace: DnsLabel
    pods: Annotated[int, Field(ge=0, le=1000)]
    """Number of pods, each of which requests one unit of `nvidia.com/gpu`; also the default of `gpu_quota`."""
    business_unit: str | None = None
    """A business unit of the settings. The namespace and its pods get its labels."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """More labels of its pods."""
    gpu_quota: Annotated[int, Field(ge=0, le=10000)] | None = None

    @property
    def quota(self) -> int:
        """Return how many units of `nvidia.com/gpu` the namespace may request."""
        return self.pods if self.gpu_quota is None else self.gpu_quota


class ExistingClusterParameters(Section):
    """The parameter file of an existing cluster. All keys are optional."""

    cluster: str | None = None
    """A cluster of the settings, which contain its region, workspace and labels. Required if they have several."""
    account_id: Account | None = None
    """Account of the cluster and its workspace. Required if the collector writes to AMP."""
    deployment_account_id: Account | None = None
    """Account in which gpucost runs; by default the account of the cluster."""
    deployment_stack: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,60}$")] = "gpucost"
    """Name of gpucost's stack, or its beginning. Its roles may assume the role of the settings (`role_arn`)."""
    collection: CollectionParameters = CollectionParameters()
    collector_role: CollectorRoleParameters = CollectorRoleParameters()
    kube_prometheus_stack: KubePrometheusStackParameters = KubePrometheusStackParameters()
    system_nodes: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels of the nodes on which operators and collectors run. If empty, they run on any node."""


class Parameters(ExistingClusterParameters):
    """The parameter file of a new cluster."""

    cluster: str
    account_id: Account
    kubernetes_version: KubernetesVersion
    zones: Annotated[tuple[Zone, ...], Field(min_length=2)]
    environment: LabelValue = "production"
    gpu_group: GpuGroupParameters = GpuGroupParameters()
    spot_instance_types: Annotated[tuple[InstanceType, ...], Field(min_length=2)] = ("g5.12xlarge", "g6.12xlarge")
    """Instance types with the same CPU, memory and GPUs, because Cluster Autoscaler plans with the first one."""
    system_nodes: dict[LabelKey, LabelValue] = Field(default_factory=lambda: {"workload": "system"})
    tenants: Annotated[tuple[MigSliceNamespaceParameters, ...], Field(min_length=1)]

    @field_validator("zones", "spot_instance_types")
    @classmethod
    def _check_distinct(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{repeated[0]!r} is listed twice. List each name once")
        return names

    @model_validator(mode="after")
    def _check_distinct_namespaces(self) -> "Parameters":
        names = [tenant.namespace for tenant in self.tenants]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"tenants: namespace {repeated[0]!r} is listed twice. List each namespace once")
        return self


ParametersModel = TypeVar("ParametersModel", bound=ExistingClusterParameters)


def parse_parameters(text: str) -> Parameters:
    """Read and validate the parameter file of a new cluster (YAML).

    Raises:
        InvalidInputError: the file is invalid; the message names the key.
    """
    return _parse(text, Parameters)


def parse_existing_cluster_parameters(text: str) -> ExistingClusterParameters:
    """Read and validate the parameter file of an existing cluster (YAML). Keys of new clusters are not used.

    Raises:
        InvalidInputError: the file is invalid; the message names the key.
    """
    return _parse(text, ExistingClusterParameters, ignored=Parameters.model_fields)


def _parse(text: str, model: type[ParametersModel], ignored: Collection[str] = ()) -> ParametersModel:
    try:
        document = yaml.safe_load(text)
        if isinstance(document, dict):
            document = {key: document[key] for key in document if key in model.model_fields or key not in ignored}
        return model.model_validate({} if document is None else document)
    except yaml.YAMLError as error:
        raise InvalidInputError(f"parameters are not valid YAML: {getattr(error, 'problem', error)}") from error
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in details["loc"])
        problem = (
            "unknown key" if details["type"] == "extra_forbidden" else details["msg"].removeprefix("Value error, ")
        )
        raise InvalidInputError(f"parameters: {key + ': ' if key else ''}{problem}") from error
