"""Parses the parameter file of `gpucost manifests render`, which adds facts about a cluster to the settings."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, create_model, field_validator, model_validator

from gpucost.settings.documents import load_document, validate_document
from gpucost.settings.metrics_sources import EXPORTERS
from gpucost.settings.section import Section, matching_pattern
from gpucost_cli.manifests.gpu_exporters import GPU_EXPORTERS


def _account_as_text(account: object) -> object:
    """Accept an account ID without quotes; YAML reads one that begins with 0 as another number."""
    return str(account) if isinstance(account, int) and len(str(account)) == 12 else account


Account = Annotated[
    str,
    matching_pattern(
        r"\d{12}",
        'the 12 digits of an AWS account in quotes; "aws sts get-caller-identity --query Account" prints them',
    ),
    BeforeValidator(_account_as_text),
]
Zone = Annotated[str, matching_pattern(r"[a-z]{2}(-[a-z]+)+-\d[a-z]", "an availability zone, such as us-east-1a")]
DnsLabel = Annotated[
    str, matching_pattern(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", "up to 52 lower-case letters, digits and -")
]
InstanceType = Annotated[str, matching_pattern(r"[a-z][a-z0-9-]*\.[a-z0-9-]+", "an instance type, such as g4dn.xlarge")]
LabelKey = Annotated[
    str,
    matching_pattern(
        r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", "a label's key, such as example.com/team"
    ),
]
LabelValue = Annotated[
    str,
    matching_pattern(
        r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", "a label's value: up to 63 letters, digits, -, _ and ."
    ),
]
KubernetesVersion = Annotated[str, matching_pattern(r"1\.\d{2}", 'a Kubernetes version in quotes, such as "1.34"')]
MigGeometryName = Annotated[
    str, matching_pattern(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", "a configuration's name, such as all-1g.5gb")
]
"""A configuration of MIG Manager: built in (`all-1g.5gb`) or defined in `gpu-operator-mig-mixed.yaml`."""
MigProfile = Annotated[
    str, matching_pattern(r"[1-7]g\.\d+gb(\.[a-z.]+)?", "a MIG profile as in resource names, such as 1g.5gb")
]
OidcProvider = Annotated[
    str,
    matching_pattern(
        r"oidc\.eks\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/id/[A-Z0-9]+",
        "the cluster's OIDC issuer without https://, such as oidc.eks.us-east-1.amazonaws.com/id/0123ABCD",
    ),
]
StackName = Annotated[
    str, matching_pattern(r"[A-Za-z][A-Za-z0-9-]{0,60}", "a stack's name: up to 61 letters, digits and -")
]


Namespaces = Annotated[tuple[DnsLabel, ...], Field(min_length=1)]


_GPU_EXPORTER_NAMESPACES = tuple(exporter.namespace for exporter in GPU_EXPORTERS)

if TYPE_CHECKING:

    class ExporterNamespaces(Section):
        """Namespaces of the exporters. Pods of other namespaces are not scraped, whatever their labels say."""

else:
    ExporterNamespaces = create_model(
        "ExporterNamespaces",
        __base__=Section,
        __doc__="Namespaces of the exporters. Pods of other namespaces are not scraped, whatever their labels say.",
        __module__=__name__,
        **{exporter.source: (Namespaces, exporter.namespaces or _GPU_EXPORTER_NAMESPACES) for exporter in EXPORTERS},
    )


class CollectionParameters(Section):
    """How collectors scrape metrics."""

    exporter_namespaces: ExporterNamespaces = ExporterNamespaces()

    scrape_interval_seconds: Annotated[int, Field(ge=30, le=120)] = 60
    """AMP's managed scraper accepts 30 or more. Above 120, short-lived pods are missed."""
    dashboards: bool = True
    """Whether to keep the series that only dashboards and alerting rules query."""
    inference_namespaces: tuple[DnsLabel, ...] = ()
    """Namespaces of inference servers, if the settings enable `inference`. By default all."""
    shared_mig_profiles: tuple[MigProfile, ...] = ()
    """MIG profiles (`1g.5gb`) whose slices are time-sliced under the strategy `mixed`."""


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


class ServeParameters(Section):
    """`gpucost serve` in the cluster (`--for serve`)."""

    image: Annotated[str, Field(pattern=r"^[a-z0-9][a-zA-Z0-9._:/@-]{0,299}$")] | None = None
    """The image that was built from the Dockerfile. Required with `--for serve`."""
    namespace: DnsLabel = "gpucost"
    storage: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}[GT]i$")] = "10Gi"
    """Size of the volume of the ledger."""
    storage_class: DnsLabel | None = None
    """By default the cluster's."""
    allowed_namespaces: tuple[DnsLabel, ...] = ()
    """Namespaces whose pods may reach the page, such as that of an ingress controller. By default none."""


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
    deployment_stack: StackName = "gpucost"
    """Name of gpucost's stack, or its beginning. Its roles may assume the role of the settings (`role_arn`)."""
    collection: CollectionParameters = CollectionParameters()
    collector_role: CollectorRoleParameters = CollectorRoleParameters()
    kube_prometheus_stack: KubePrometheusStackParameters = KubePrometheusStackParameters()
    serve: ServeParameters = ServeParameters()
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
        SettingsError: the file is invalid; the message names the key.
    """
    return _parse(text, Parameters)


def parse_existing_cluster_parameters(text: str) -> ExistingClusterParameters:
    """Read and validate the parameter file of an existing cluster (YAML). Keys of new clusters are not used.

    Raises:
        SettingsError: the file is invalid; the message names the key.
    """
    return _parse(text, ExistingClusterParameters, ignored=Parameters.model_fields)


def _parse(text: str, model: type[ParametersModel], ignored: Collection[str] = ()) -> ParametersModel:
    document = load_document(text, "parameters")
    if isinstance(document, dict):
        document = {key: document[key] for key in document if key in model.model_fields or key not in ignored}
    return validate_document({} if document is None else document, model, text, "parameters")
