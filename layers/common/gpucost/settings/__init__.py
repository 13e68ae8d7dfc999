"""The settings document: metric servers, clusters, business units, energy, retention and access.

One YAML or JSON document. Unknown keys are errors that name the key. The document never contains secrets, only names of
secrets in Secrets Manager.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, field_validator, model_validator

from gpucost.core.access import Caller, IamCaller, principal_of
from gpucost.core.errors import SettingsError
from gpucost.core.hour_record import MEASURED_SOURCES, EstimatedSource, MeasuredSource
from gpucost.core.hours import floor_hour
from gpucost.core.ledger import MIN_RETENTION, Retention
from gpucost.core.metering.accelerators import GPU_RESOURCES, exported_resource
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, SAGEMAKER_PREFIX
from gpucost.core.metering.nvlink_domains import MinimumJob
from gpucost.core.metering.signals import SIGNALS
from gpucost.core.pricing.emissions import DEFAULT_PUE, Emissions
from gpucost.settings.inference import InferenceSettings
from gpucost.settings.metrics_sources import LabelName, MetricsSourcesSettings
from gpucost.settings.pricing import PricingSettings
from gpucost.settings.section import (
    BOUNDED_DIGITS,
    MAX_SHOWN_CHARACTERS,
    Address,
    DayOrTime,
    ExternalId,
    Name,
    Positive,
    QueryRole,
    Region,
    SecretName,
    Section,
    day_as_midnight,
    duplicates,
    matching_pattern,
    protects_secrets,
)

Ratio = Annotated[Decimal, Field(ge=0, le=1), BOUNDED_DIGITS]
ClusterName = Annotated[
    str,
    matching_pattern(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", "up to 100 letters, digits, _, . and -, the first a letter or a digit"
    ),
]
EmissionFactor = Annotated[Decimal, Field(ge=0, le=10), BOUNDED_DIGITS]
GpusPerUnit = Annotated[Decimal, Field(ge=0, le=64), BOUNDED_DIGITS]


def _has_no_catalog_entry(name: str) -> str:
    if re.fullmatch(GPU_RESOURCES, exported_resource(name)):
        raise ValueError(f"{name} is a resource whose GPUs gpucost knows. Name only others")
    return name


ResourceName = Annotated[
    str,
    matching_pattern(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,315}", "a Kubernetes resource, such as nvidia.com/a10g-large"),
    AfterValidator(_has_no_catalog_entry),
]
UtilizationSourceChoice = Literal[MeasuredSource, EstimatedSource]


# Prometheus, and the headers of its requests.

_API_PATH = re.compile(r"/api/v1(/(query|query_range|remote_write|write))?/?$")
DEFAULT_MAX_SAMPLES_PER_QUERY = 500_000_000
"""All queries for a day of 10,000 pods process 70 million samples. A query that exceeds this limit has no selector."""


_SECRET_WORDS = frozenset(("apikey", "auth", "cookie", "credential", "key", "password", "secret", "session", "token"))
_RESERVED_HEADERS = frozenset(
    (
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    )
)
"""Headers that the client itself sets, or that describe its connection."""


def _is_not_reserved(name: str) -> str:
    lower_name = name.lower()
    if lower_name in {"authorization", "proxy-authorization"}:
        raise ValueError(f"{name} is not allowed; use auth: bearer with a secret, or auth: sigv4")
    if lower_name in _RESERVED_HEADERS or lower_name.startswith("x-amz-"):
        raise ValueError(f"{name} is not allowed, because gpucost sets it itself; remove it")
    return name


HeaderName = Annotated[
    str,
    matching_pattern(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", "a header's name without spaces or colons: X-Scope-OrgID"),
    AfterValidator(_is_not_reserved),
]
HeaderValue = Annotated[
    str, matching_pattern(r"[!-~]([ -~]{0,998}[!-~])?", "1 to 1000 printable ASCII characters, not spaces at its ends")
]


def carries_secret(name: str) -> bool:
    """Whether a header's name says that its value is a secret, for example `X-Api-Key`."""
    return not _SECRET_WORDS.isdisjoint(re.split(r"[^a-z0-9]+", name.lower()))


class PrometheusSettings(Section):
    """Address of a cluster's Prometheus or AMP workspace, and authentication to it."""

    url: Address
    """Base URL, without `/api/v1`. For AMP: `https://aps-workspaces.<region>.amazonaws.com/workspaces/<id>`."""
    auth: Literal["none", "sigv4", "bearer"] = "none"
    """How queries are authenticated: not at all, with AWS Signature Version 4 (AMP), or with a bearer token."""
    region: Region | None = None
    """The AWS region of the AMP workspace. Required with `auth: sigv4`, and only allowed there."""
    role_arn: QueryRole | None = None
    """The IAM role to assume for queries, if the workspace is in another account. Only with `auth: sigv4`."""
    external_id: ExternalId | None = None
    """The external id that the role's trust policy requires. Only with `role_arn`."""
    secret: SecretName | None = None
    """Name of the secret with the URL and the bearer token, or user and password. Required with `auth: bearer`, and
    only allowed there."""
    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=10)] = Field(default_factory=dict)
    """Additional headers of every query, such as `X-Scope-OrgID` for Mimir. Values here are visible to everyone who may
    read the settings; put secrets into `secret_headers`."""
    secret_headers: Annotated[dict[HeaderName, SecretName], Field(max_length=5)] = Field(default_factory=dict)
    """Additional headers whose values are secrets: names of secrets with the value `{"url": …, "token": …}`. The token
    is sent only to the scheme, host and port of `url`."""
    ca_certificates: Annotated[str, Field(max_length=20_000)] | None = None
    """Certificates in PEM format of the authorities that the server's certificate may be from, besides the public ones.
    Only with an `https` address."""
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 60
    """The longest time for one query, in seconds."""
    retention_days: Annotated[int, Field(ge=1, le=1095)] | None = None
    """How long metrics are kept. By default the server's own setting; for AMP, which does not report it, 150 days."""
    max_samples_per_query: Annotated[int, Field(ge=1_000_000, le=10**12)] | None = None
    """The most samples that AMP may process for one query. It lets a query over it fail, without a charge, and gpucost
    does not split it. Default: 500 million ($0.05). Only with auth: sigv4, because only AMP has this limit."""

    @field_validator("url")
    @classmethod
    def _url_is_an_address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            has_host = bool(parts.hostname) and parts.port != 0
        except ValueError:
            has_host = False
        if not has_host:
            raise ValueError("is not an address like http://127.0.0.1:9090")
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not contain credentials; use auth: bearer with a secret")
        return url

    @field_validator("ca_certificates")
    @classmethod
    def _certificates_are_readable(cls, certificates: str) -> str:
        if "PRIVATE KEY" in certificates:
            raise ValueError("has a private key, which must not be in the settings. Write only the certificates")
        try:
            SSLContext(PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates)
        except (OSError, ValueError):
            raise ValueError(
                "has no readable certificate. Write the text from -----BEGIN CERTIFICATE----- to -----END "
                "CERTIFICATE-----, after | and indented"
            ) from None
        return certificates

    @model_validator(mode="after")
    def _certificates_are_used(self) -> "PrometheusSettings":
        if self.ca_certificates is not None and not self.url.lower().startswith("https:"):
            raise ValueError("ca_certificates is only allowed with an https address")
        return self

    @model_validator(mode="after")
    def _headers_are_unambiguous(self) -> "PrometheusSettings":
        names = [name.lower() for name in (*self.headers, *self.secret_headers)]
        if repeated := duplicates(names):
            raise ValueError(f"header {min(repeated)!r} is named twice; upper and lower case are the same to HTTP")
        for name in self.headers:
            if carries_secret(name):
                raise ValueError(
                    f"headers.{name}: the value of this header is a secret. Store it in Secrets Manager, and name it "
                    f"in secret_headers: {{{name}: gpucost/…}}"
                )
        return self

    @model_validator(mode="after")
    def _auth_is_complete(self) -> "PrometheusSettings":
        if self.auth == "sigv4" and self.region is None:
            raise ValueError("region is required with auth: sigv4")
        if self.auth != "sigv4" and (self.region or self.role_arn or self.external_id):
            raise ValueError("region, role_arn and external_id are only allowed with auth: sigv4")
        if self.auth != "sigv4" and self.max_samples_per_query is not None:
            raise ValueError("max_samples_per_query is only allowed with auth: sigv4, because only AMP supports it")
        if self.external_id and not self.role_arn:
            raise ValueError("external_id is only allowed with role_arn")
        if (self.auth == "bearer") != (self.secret is not None):
            raise ValueError("secret is required with auth: bearer, and only allowed there")
        return self

    def sample_limit(self) -> int | None:
        """The samples that one query may process; None if the server has no such limit."""
        return (self.max_samples_per_query or DEFAULT_MAX_SAMPLES_PER_QUERY) if self.auth == "sigv4" else None


# Clusters, and how their hours are metered.


class ClusterSettings(Section):
    """One EKS cluster."""

    name: ClusterName
    """The cluster's name in reports and in the API."""
    prometheus: PrometheusSettings
    """The server that has the cluster's metrics."""
    selector: dict[LabelName, str] = Field(default_factory=dict)
    """Label matchers that are added to every query, if several clusters share a workspace."""
    sources: MetricsSourcesSettings = MetricsSourcesSettings.model_construct()
    """Label matchers of each source's trusted series; by default all series are trusted."""
    slices_per_gpu: Annotated[int, Field(ge=1, le=64)] | None = None
    """How many units of `nvidia.com/gpu` are one GPU, if the node has no label that says so."""
    units: dict[ResourceName, GpusPerUnit] = Field(default_factory=dict)
    """Physical GPUs per unit of resources under other names, such as `{nvidia.com/a10g-large: 1}`; 0 for a resource
    that is no GPU."""

    def gpus_per_unit(self) -> Mapping[str, Fraction]:
        """The GPUs per unit of further resources, named as kube-state-metrics names them."""
        return {exported_resource(name): Fraction(gpus) for name, gpus in self.units.items()}


class NvlinkDomainSettings(Section):
    """The smallest job that runs in an NVLink domain, for some clusters and node pools."""

    minimum_job_gpus: Annotated[int, Field(ge=2, le=10_000)]
    """Physical GPUs of the smallest job. While fewer of a domain's GPUs are free, these count as stranded."""
    cluster: Name | None = None
    """Shell pattern of the cluster's name. By default all clusters."""
    node_pool: Name | None = None
    """Shell pattern of the node pool's name. By default all node pools."""


class InstanceTypeSettings(Section):
    """The GPUs of an EC2 instance type that is newer than the catalog of this release."""

    name: Name
    """The EC2 instance type."""
    gpus: Annotated[Decimal, Field(gt=0, le=1024), BOUNDED_DIGITS]
    """Physical NVIDIA GPUs of an instance; less than 1 for a part of a GPU, for example 0.125."""

    @field_validator("gpus")
    @classmethod
    def _is_whole_or_a_part(cls, gpus: Decimal) -> Decimal:
        if gpus > 1 and gpus != int(gpus):
            raise ValueError("must be a whole number, or less than 1 for an instance with a part of a GPU")
        return gpus


class UtilizationSettings(Section):
    """The utilization signal, and the allowed utilization sources in order of preference."""

    signal: Annotated[Name, Field(json_schema_extra={"enum": [*SIGNALS]})] = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    """The metric that measures the utilization of GPUs. Nodes without it use the next signal that they have."""
    scale: Positive | None = None
    """The signal's value at full use; by default the usual one of the signal."""
    sources: Annotated[tuple[UtilizationSourceChoice, ...], Field(min_length=1)] = MEASURED_SOURCES
    """Where a pod's utilization may come from, in order of preference: its exclusive devices (`pod`); its part of
    devices that it shares, by what its processes use (`process`) or by its replicas (`shared`); or the average of its
    node or cluster."""
    on_contradiction: Literal["unmeasured", "device"] = "unmeasured"
    """What counts if the signal of a node's held GPUs is exactly 0 all hour, although another signal says that they are
    in use, or they draw at least twice the power of their lowest hour of the day: nothing (`unmeasured`), or the other
    signal (`device`). The hour has a note."""

    @field_validator("signal")
    @classmethod
    def _signal_exists(cls, signal: str) -> str:
        if signal not in SIGNALS:
            raise ValueError(f"{signal!r} is not a known signal; allowed: {', '.join(SIGNALS)}")
        return signal

    @field_validator("sources")
    @classmethod
    def _sources_are_unique(cls, sources: tuple[UtilizationSourceChoice, ...]) -> tuple[UtilizationSourceChoice, ...]:
        if repeated := [source for source in sources if sources.count(source) > 1]:
            raise ValueError(f"contains {repeated[0]} twice; name each source once")
        return sources


class CoverageSettings(Section):
    """The minimum share of expected scrapes for an hour to be complete."""

    allocation: Ratio = Decimal("0.25")
    """Minimum share of the scrapes of pods and nodes, from 0 to 1."""
    utilization: Ratio = Decimal(0)
    """0: missing utilization makes lines unmeasured, but not hours incomplete."""


# Business units, and the energy of clusters.


class BusinessUnitSettings(Section):
    """A business unit owns pods that any of its matchers match. The first unit that matches wins."""

    name: Name
    """The business unit's name in reports and in the API."""
    namespaces: tuple[Name, ...] = ()
    """Shell patterns such as `team-*`. The unit owns all pods of a namespace that one of them matches."""
    namespace_labels: dict[Name, str] = Field(default_factory=dict)
    """Labels with one value each. The unit also owns all pods of a namespace that has all of them."""
    pod_labels: dict[Name, str] = Field(default_factory=dict)
    """Labels with one value each, which is no pattern. The unit also owns pods that have all of them. Pods with other
    values are those of other units; `namespaces` takes several patterns. Whoever may create pods may label them, and so
    picks who pays, unless a policy of the cluster prevents it (`workloads/payer-policy.yaml` of the manifests)."""
    consumers: tuple[Name, ...] = ()
    """Shell patterns of the names by which inference servers know the unit's requests (`inference.consumer_label`). A
    name that no unit matches is a unit of its own. It owns no pods through them."""
    since: Annotated[datetime | None, Field(alias="from", default=None)]
    """The UTC hour or day from which this entry replaces an earlier one of the same name."""
    distribute: Literal["proportional", "even"] | None = None
    """How its cost is distributed to the other units: in proportion to their cost in the hour, or evenly."""

    @field_validator("namespace_labels", "pod_labels", mode="before", json_schema_input_type=dict[Name, str])
    @classmethod
    def _labels_have_single_values(cls, labels: object) -> object:
        if isinstance(labels, dict) and (several := [key for key, value in labels.items() if isinstance(value, list)]):
            raise ValueError(
                f"{several[0]} has a list, but a unit takes one value of a label. Write a unit for each value, with "
                "names of their own, or match by namespaces, which takes a list of shell patterns"
            )
        return labels

    @field_validator("since", mode="before", json_schema_input_type=DayOrTime | None)
    @classmethod
    def _is_a_day_or_hour(cls, since: object) -> object:
        return day_as_midnight(since)

    @field_validator("since")
    @classmethod
    def _is_an_hour(cls, since: datetime | None) -> datetime | None:
        if since is not None and (since.tzinfo is None or floor_hour(since) != since):
            raise ValueError("must be a UTC day or full hour like 2026-11-19 or 2026-11-19T10:00:00Z")
        return since if since is None else since.astimezone(UTC)

    @model_validator(mode="after")
    def _matches_something(self) -> "BusinessUnitSettings":
        if not (self.namespaces or self.namespace_labels or self.pod_labels or self.consumers):
            raise ValueError("one of namespaces, namespace_labels, pod_labels, consumers is required")
        return self


class EnergySettings(Section):
    """The energy of GPUs and its emissions. Energy is measured where dcgm-exporter reports it."""

    enabled: bool = True
    """Whether energy is read from Prometheus. False saves it some work."""
    pue: Annotated[Decimal, Field(ge=1, le=5), BOUNDED_DIGITS] = DEFAULT_PUE
    """Power usage effectiveness: the energy of the data center ÷ that of its computers. Emissions are multiplied by
    it."""
    co2e_kg_per_kwh: dict[Region, EmissionFactor] = Field(default_factory=dict)
    """Emission factors of the electricity by AWS region, in kg CO2e per kWh. They replace the built-in ones."""
    co2e_kg_per_kwh_of_cluster: dict[ClusterName, EmissionFactor] = Field(default_factory=dict)
    """Emission factors by cluster, which take precedence over those of regions."""

    def emissions(self) -> Emissions:
        """The emission factors."""
        return Emissions(self.pue, self.co2e_kg_per_kwh, self.co2e_kg_per_kwh_of_cluster)


# Retention and access, and the document of all sections.

_HOW_TO_NAME = {
    "business_units": ". Write one entry for each name, with all of its namespaces and labels, or another name. An "
    "entry that replaces an earlier one needs from"
}


_DURATION = r"(\d{1,4}y)?(\d{1,4}w)?(\d{1,5}d)?"
_DAYS_PER_UNIT = {"d": 1, "w": 7, "y": 365}


def _days_of_duration(value: object) -> object:
    """Convert a Prometheus duration such as `400d` or `1y5w` to days. Leave other values as they are."""
    if not isinstance(value, str):
        return value
    if not re.fullmatch(_DURATION, value) or value == "":
        shown = value[:MAX_SHOWN_CHARACTERS]
        raise ValueError(f"{shown!r} is not a number of days or a duration such as 400d, 26w or 5y")
    return sum(int(count) * _DAYS_PER_UNIT[unit] for count, unit in re.findall(r"(\d+)([ywd])", value))


_Days = Annotated[int, Field(ge=MIN_RETENTION.days, le=3660)]
_Duration = Annotated[str, Field(pattern=f"^{_DURATION}$", min_length=1)]
RetentionDays = Annotated[_Days, BeforeValidator(_days_of_duration, json_schema_input_type=_Days | _Duration)]


class RetentionSettings(Section):
    """How long records are kept: days, or a duration such as `400d`. A change applies to records written after it."""

    pods: RetentionDays = 400
    """Pods, nodes, and the usage from which hours are rated again."""
    hourly: RetentionDays = 1830
    """Hourly sums by business unit and namespace."""
    daily: RetentionDays = 1830
    """Daily sums, and records of restatements."""

    @model_validator(mode="after")
    def _sums_outlive_their_parts(self) -> "RetentionSettings":
        if not self.pods <= self.hourly <= self.daily:
            raise ValueError(
                "pods must not be longer than hourly, nor hourly longer than daily, but they are "
                f"{self.pods}, {self.hourly} and {self.daily} days"
            )
        return self

    def periods(self) -> Retention:
        """The retention periods for the ledger."""
        return Retention(*(timedelta(days=days) for days in (self.pods, self.hourly, self.daily)))


Principal = Annotated[
    str,
    StringConstraints(max_length=2048),
    matching_pattern(
        r"arn:aws[a-z-]*:iam::\d{12}:(user|role)/([\w+=,.@-]+/)*[\w+=,.@-]+",
        "the ARN of an IAM user or role, such as arn:aws:iam::123456789012:role/finance",
    ),
]
Role = Annotated[str, matching_pattern(r"admin|viewer|bu:.{1,200}", "admin, viewer or bu: with a business unit's name")]


class ClaimSettings(Section):
    """A JWT claim with a value, or with a list that contains the value."""

    name: Name
    """The claim's name in the token."""
    value: Name
    """The value that the claim must have or contain."""


class GrantSettings(Section):
    """Roles of an IAM principal, or of every user whose token has a claim."""

    principal: Principal | None = None
    """ARN of an IAM user or role. A role's grant applies to its sessions."""
    claim: ClaimSettings | None = None
    """A claim of the users' tokens, with a JWT authorizer."""
    roles: Annotated[tuple[Role, ...], Field(min_length=1)]
    """`admin`, `viewer` (all business units), `bu:<name>`."""

    @model_validator(mode="after")
    def _has_exactly_a_principal_or_a_claim(self) -> "GrantSettings":
        if (self.principal is None) == (self.claim is None):
            raise ValueError("either principal or claim is required")
        return self

    def applies_to(self, caller: Caller) -> bool:
        """Whether the grant applies to a caller."""
        if isinstance(caller, IamCaller):
            return self.principal is not None and principal_of(self.principal) == caller.principal
        return self.claim is not None and self.claim.value in caller.claims.get(self.claim.name, ())


class CoreSettings(Section):
    """The sections that the core reads. Features add theirs in subclasses; see `gpucost.settings_document`."""

    clusters: Annotated[tuple[ClusterSettings, ...], Field(min_length=1)]
    """The clusters whose cost is attributed, and where their metrics are."""
    pricing: PricingSettings = PricingSettings.model_construct()
    """Where the prices of nodes and GPUs come from."""
    utilization: UtilizationSettings = UtilizationSettings.model_construct()
    """How the utilization of GPUs is measured."""
    energy: EnergySettings = EnergySettings.model_construct()
    """Whether energy is measured, and the emission factors of its electricity."""
    inference: InferenceSettings = InferenceSettings.model_construct()
    """Whether tokens of inference servers are counted, and how costs go to models."""
    coverage: CoverageSettings = CoverageSettings.model_construct()
    """How many scrapes an hour needs to be complete."""
    nvlink_domains: tuple[NvlinkDomainSettings, ...] = ()
    """The smallest jobs of NVLink domains (racks such as GB200 NVL72). The first entry that matches a node counts."""
    instance_types: tuple[InstanceTypeSettings, ...] = ()
    """GPUs of EC2 instance types. They replace the catalog's."""
    business_units: tuple[BusinessUnitSettings, ...] = ()
    """The teams that own pods. A namespace without a business unit is a business unit of its own."""
    cost_labels: Annotated[tuple[Name, ...], Field(max_length=5)] = ()
    """Pod labels that are copied to every line."""
    lookback_hours: Annotated[int, Field(ge=1, le=720)] = 168
    """How far back the schedule looks for hours that are due, in hours."""
    retention: RetentionSettings = RetentionSettings.model_construct()
    """How long the ledger keeps its records."""
    access: tuple[GrantSettings, ...] | None = None
    """Access grants. Without this section, all callers whom IAM admits see everything; with it, only grants count."""

    @field_validator("access", mode="before", json_schema_input_type=tuple[GrantSettings, ...])
    @classmethod
    def _access_is_not_empty(cls, access: object) -> object:
        if access is None:  # an empty section is hardly meant to give access to everyone
            raise ValueError("must be a list of grants; omit the key to give access to all callers whom IAM admits")
        return access

    @model_validator(mode="after")
    def _names_are_unique(self) -> "CoreSettings":
        names = [cluster.name for cluster in self.clusters]
        units = [(unit.name, unit.since) for unit in self.business_units]
        for section, repeated in (
            ("clusters", duplicates(names)),
            ("instance_types", duplicates([added.name for added in self.instance_types])),
            ("business_units", [name for name, _ in duplicates(units)]),
        ):
            if repeated:
                raise ValueError(f"{section}: {min(repeated)!r} is named twice{_HOW_TO_NAME.get(section, '')}")
        return self

    @model_validator(mode="after")
    def _blocks_have_a_cluster(self) -> "CoreSettings":
        for block in self.pricing.capacity_blocks:
            self.pricing.cluster_of_unused_block(block, tuple(cluster.name for cluster in self.clusters))
        return self

    @model_validator(mode="after")
    def _unused_commitments_have_a_cluster(self) -> "CoreSettings":
        if self.pricing.cur is not None:
            self.pricing.cur.cluster_of_unused_commitments(tuple(cluster.name for cluster in self.clusters))
        return self

    @model_validator(mode="after")
    def _factors_are_of_clusters(self) -> "CoreSettings":
        names = {cluster.name for cluster in self.clusters}
        if unknown := self.energy.co2e_kg_per_kwh_of_cluster.keys() - names:
            raise ValueError(
                f"energy.co2e_kg_per_kwh_of_cluster: {min(unknown)!r} is not a cluster; allowed: "
                f"{', '.join(sorted(names))}"
            )
        return self

    def cluster(self, name: str) -> ClusterSettings | None:
        """The cluster with a name, or None."""
        return next((cluster for cluster in self.clusters if cluster.name == name), None)

    def gpus_by_instance_type(self) -> Mapping[str, int | Fraction]:
        """Physical GPUs per instance type: the catalog's, and those of `instance_types`."""
        if not self.instance_types:
            return GPUS_OF_INSTANCE
        configured = {
            f"{prefix}{added.name}": Fraction(added.gpus)
            for prefix in (SAGEMAKER_PREFIX, "")
            for added in self.instance_types
        }
        return {**GPUS_OF_INSTANCE, **{name: int(gpus) if gpus >= 1 else gpus for name, gpus in configured.items()}}

    def minimum_jobs(self, cluster: str) -> tuple[MinimumJob, ...]:
        """The smallest jobs of NVLink domains that apply to a cluster, in order of preference."""
        return tuple(
            MinimumJob(domains.minimum_job_gpus, domains.node_pool or "*")
            for domains in self.nvlink_domains
            if fnmatchcase(cluster, domains.cluster or "*")
        )

    def check_new_document(self) -> None:
        """Check requirements that apply to new documents only, not to stored ones.

        Raises:
            SettingsError: a requirement is not met.
        """
        if faults := list(self.new_document_faults()):
            raise SettingsError(*faults)

    def new_document_faults(self) -> Iterator[str]:
        """Yield a sentence for each address without TLS to which credentials would be sent, or with an API's path."""
        for index, cluster in enumerate(self.clusters):
            if path := _API_PATH.search(cluster.prometheus.url):
                yield f"settings: clusters[{index}].prometheus.url: leave out {path[0]}; queries append their own path"
        for key, address in self.addresses_with_credentials():
            if not protects_secrets(address):
                yield f"settings: {key}: {address} has no TLS, and credentials are sent to https:// only"

    def addresses_with_credentials(self) -> Iterator[tuple[str, str]]:
        """Keys and values of the addresses to which credentials are sent."""
        for index, cluster in enumerate(self.clusters):
            if cluster.prometheus.auth != "none" or cluster.prometheus.secret_headers:
                yield f"clusters[{index}].prometheus.url", cluster.prometheus.url


SettingsModel = TypeVar("SettingsModel", bound=CoreSettings)
