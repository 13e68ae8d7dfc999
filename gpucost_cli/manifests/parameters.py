"""Parses the parameter file of `gpucost manifests render`, which adds facts about a cluster to the settings."""

from typing import Annotated

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


class GpuGroupParameters(Section):
    """The proof of concept's GPU node group."""

    instance_type: InstanceType = "p4d.24xlarge"
    nodes: Annotated[int, Field(ge=1, le=100)] = 1
    mig_geometry: MigGeometryName = "all-1g.5gb"


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


class Parameters(Section):
    """The parameter file of one cluster."""

    cluster: str
    """A cluster of the settings, which contain its region, workspace and labels."""
    account_id: Account
    """Account of the cluster and its workspace."""
    deployment_account_id: Account | None = None
    """Account in which gpucost runs; by default the account of the cluster."""
    deployment_stack: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,60}$")] = "gpucost"
    kubernetes_version: KubernetesVersion
    zones: Annotated[tuple[Zone, ...], Field(min_length=2)]
    environment: LabelValue = "production"
    collection: CollectionParameters = CollectionParameters()
    gpu_group: GpuGroupParameters = GpuGroupParameters()
    spot_instance_types: Annotated[tuple[InstanceType, ...], Field(min_length=2)] = ("g5.12xlarge", "g6.12xlarge")
    """Instance types with the same CPU, memory and GPUs, because Cluster Autoscaler plans with the first one."""
    system_nodes: dict[LabelKey, LabelValue] = Field(default_factory=lambda: {"workload": "system"})
    """Labels of the nodes on which operators and collectors run. If empty, they run on any node."""
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


def parse_parameters(text: str) -> Parameters:
    """Read and validate a parameter file (YAML).

    Raises:
        InvalidInputError: the file is invalid; the message names the key.
    """
    try:
        return Parameters.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise InvalidInputError(f"parameters are not valid YAML: {getattr(error, 'problem', error)}") from error
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in details["loc"])
        problem = (
            "unknown key" if details["type"] == "extra_forbidden" else details["msg"].removeprefix("Value error, ")
        )
        raise InvalidInputError(f"parameters: {key + ': ' if key else ''}{problem}") from error
