"""The kit's parameter file: what a cluster needs to be told that the settings document does not say."""

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
Geometry = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]
"""A name that MIG Manager's configuration knows: its own (`all-1g.5gb`), or one of `gpu-operator-mig-mixed.yaml`."""


Namespaces = Annotated[tuple[DnsLabel, ...], Field(min_length=1)]


class ExporterNamespaces(Section):
    """Where exporters run: pods of any other namespace are not scraped, whatever they call themselves."""

    kube_state_metrics: Namespaces = ("kube-system",)
    dcgm_exporter: Namespaces = ("gpu-operator",)
    neuron_monitor: Namespaces = ("neuron-monitor", "kube-system")
    karpenter: Namespaces = ("kube-system", "karpenter")


class CollectionParameters(Section):
    """How metrics are collected."""

    exporter_namespaces: ExporterNamespaces = ExporterNamespaces()

    scrape_interval_seconds: Annotated[int, Field(ge=30, le=120)] = 60
    """AMP's managed scraper takes no less than 30; above 120 short lives of pods go unseen."""
    dashboards: bool = True
    """Keep what dashboards and alerting rules show beside what metering needs."""


class GpuGroupParameters(Section):
    """The proof of concept's GPU node group."""

    instance_type: InstanceType = "p4d.24xlarge"
    nodes: Annotated[int, Field(ge=1, le=100)] = 1
    mig_geometry: Geometry = "all-1g.5gb"


class TenantParameters(Section):
    """A namespace of the proof of concept that holds GPU slices."""

    namespace: DnsLabel
    pods: Annotated[int, Field(ge=0, le=1000)]
    """Each requests one unit of `nvidia.com/gpu`; as many are the namespace's quota unless `gpu_quota` says more."""
    business_unit: str | None = None
    """One of the settings' units, whose labels the namespace and its pods then carry."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Further labels of its pods."""
    gpu_quota: Annotated[int, Field(ge=0, le=10000)] | None = None

    @property
    def quota(self) -> int:
        """Units of `nvidia.com/gpu` that the namespace may request."""
        return self.pods if self.gpu_quota is None else self.gpu_quota


class Parameters(Section):
    """The whole file."""

    cluster: str
    """One of the settings' clusters: its name, region, workspace and labels are taken from there."""
    account_id: Account
    """Of the cluster and its workspace."""
    deployment_account_id: Account | None = None
    """Where the service runs; the cluster's own where not given."""
    deployment_stack: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,60}$")] = "gpucost"
    kubernetes_version: KubernetesVersion
    zones: Annotated[tuple[Zone, ...], Field(min_length=2)]
    environment: LabelValue = "production"
    collection: CollectionParameters = CollectionParameters()
    gpu_group: GpuGroupParameters = GpuGroupParameters()
    spot_instance_types: Annotated[tuple[InstanceType, ...], Field(min_length=2)] = ("g5.12xlarge", "g6.12xlarge")
    """Of one shape: Cluster Autoscaler takes a group's first type for all of them."""
    system_nodes: dict[LabelKey, LabelValue] = Field(default_factory=lambda: {"workload": "system"})
    """Labels of the nodes for operators and collectors: eksctl gives them, workloads select them. Empty: any node."""
    tenants: Annotated[tuple[TenantParameters, ...], Field(min_length=1)]

    @field_validator("zones", "spot_instance_types")
    @classmethod
    def _are_distinct(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) < len(names):
            raise ValueError("names one twice")
        return names

    @model_validator(mode="after")
    def _namespaces_are_distinct(self) -> "Parameters":
        names = [tenant.namespace for tenant in self.tenants]
        if len(set(names)) < len(names):
            raise ValueError("tenants: a namespace stands twice")
        return self


def parse_parameters(text: str) -> Parameters:
    """Read and validate a parameter file (YAML).

    Raises:
        InvalidInputError: one sentence that names the key.
    """
    try:
        return Parameters.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise InvalidInputError(f"parameters are not valid YAML: {getattr(error, 'problem', error)}") from error
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in finding["loc"])
        what = "unknown key" if finding["type"] == "extra_forbidden" else finding["msg"].removeprefix("Value error, ")
        raise InvalidInputError(f"parameters: {where + ': ' if where else ''}{what}") from error
