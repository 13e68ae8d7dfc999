"""The settings document: which clusters, how GPUs are priced and measured, who owns what, when to speak up.

One YAML or JSON document (design §6). Unknown keys are errors that name the key; secrets are never in it, only
names of Secrets Manager secrets.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, Field, StringConstraints, ValidationError, field_validator, model_validator

from gpucost.domain.hours import floor_hour
from gpucost.domain.ledger import Retention
from gpucost.domain.signals import SIGNALS
from gpucost.errors import SettingsError
from gpucost.settings.access import GrantSettings
from gpucost.settings.pricing import PricingSettings
from gpucost.settings.section import Name, Percent, Positive, QueryRole, Region, Section, as_instant

Share = Annotated[Decimal, Field(ge=0, le=1)]
SecretName = Annotated[str, StringConstraints(pattern=r"^gpucost/[A-Za-z0-9/_+=.@-]{1,400}$")]
LabelName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
Rung = Literal["pod", "shared", "node", "cluster"]


class PrometheusSettings(Section):
    """Where a cluster's metrics are and how to be let in."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$")]
    """Base address; `/api/v1/query` is added. For AMP: `https://aps-workspaces.<region>.amazonaws.com/workspaces/<id>`."""
    auth: Literal["none", "sigv4", "bearer"] = "none"
    region: Region | None = None
    role_arn: QueryRole | None = None
    external_id: Name | None = None
    secret: SecretName | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 60
    retention_days: Annotated[int, Field(ge=1, le=1095)] | None = None
    """How long the metrics are kept; asked of the server where it tells (AMP does not: its default of 150 is taken)."""

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
            raise ValueError("must not hold credentials; use auth: bearer with a secret")
        return url

    @model_validator(mode="after")
    def _auth_has_what_it_needs(self) -> "PrometheusSettings":
        if self.auth == "sigv4" and self.region is None:
            raise ValueError("region is needed with auth: sigv4")
        if self.auth != "sigv4" and (self.region or self.role_arn or self.external_id):
            raise ValueError("region, role_arn and external_id go with auth: sigv4 only")
        if self.external_id and not self.role_arn:
            raise ValueError("external_id goes with role_arn only")
        if (self.auth == "bearer") != (self.secret is not None):
            raise ValueError("secret goes with auth: bearer, and is needed there")
        return self


class ClusterSettings(Section):
    """One EKS cluster."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    prometheus: PrometheusSettings
    selector: dict[LabelName, str] = Field(default_factory=dict)
    """Matchers added to every query, where several clusters share a workspace."""
    slices_per_gpu: Annotated[int, Field(ge=1, le=64)] | None = None
    """What a unit of `nvidia.com/gpu` is (1/n of a GPU), where the node does not say."""


class UtilizationSettings(Section):
    """Which signal says how busy a GPU is, and how far down the ladder to go when a pod has no signal of its own."""

    signal: Name = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    scale: Positive | None = None
    """The signal's value at full use; the catalogue's own where not given."""
    ladder: Annotated[tuple[Rung, ...], Field(min_length=1)] = ("pod", "shared")

    @field_validator("signal")
    @classmethod
    def _signal_is_known(cls, signal: str) -> str:
        if signal not in SIGNALS:
            raise ValueError(f"{signal!r} is not a known signal; allowed: {', '.join(SIGNALS)}")
        return signal

    @field_validator("ladder")
    @classmethod
    def _rungs_are_unique(cls, ladder: tuple[Rung, ...]) -> tuple[Rung, ...]:
        if len(set(ladder)) < len(ladder):
            raise ValueError("names a rung twice")
        return ladder


class CoverageSettings(Section):
    """Least share of scrapes that must have been seen for an hour to count as complete."""

    allocation: Share = Decimal("0.25")
    utilization: Share = Decimal(0)
    """0: use that nobody saw makes lines unmeasured, not hours incomplete."""


class BusinessUnitSettings(Section):
    """A business unit owns what any of its matchers match; the first unit that matches wins."""

    name: Name
    namespaces: tuple[Name, ...] = ()
    """Patterns as in a shell: `team-*`."""
    namespace_labels: dict[Name, str] = Field(default_factory=dict)
    pod_labels: dict[Name, str] = Field(default_factory=dict)
    since: Annotated[datetime | None, Field(alias="from", default=None)]
    """The UTC hour or day from which on this entry is in force, in place of an earlier one of the same name."""
    distribute: Literal["proportional", "even"] | None = None
    """How its cost is passed on to the other units: by what theirs cost in the hour, or evenly."""

    @field_validator("since", mode="before")
    @classmethod
    def _is_a_day_or_hour(cls, since: object) -> object:
        return as_instant(since)

    @field_validator("since")
    @classmethod
    def _is_an_hour(cls, since: datetime | None) -> datetime | None:
        if since is not None and (since.tzinfo is None or floor_hour(since) != since):
            raise ValueError("must be a UTC day or full hour like 2026-11-19 or 2026-11-19T10:00:00Z")
        return since if since is None else since.astimezone(UTC)

    @model_validator(mode="after")
    def _matches_something(self) -> "BusinessUnitSettings":
        if not (self.namespaces or self.namespace_labels or self.pod_labels):
            raise ValueError("one of namespaces, namespace_labels, pod_labels is needed")
        return self


class WasteOverride(Section):
    """Other thresholds for one business unit."""

    business_unit: Name
    waste_usd_per_hour: Positive | None = None
    waste_percent: Percent | None = None
    for_hours: Annotated[int, Field(ge=1, le=168)] | None = None


class WasteRule(Section):
    """Fires when a unit wastes at least so much money, and so much of what it holds, for so many hours on end."""

    rule: Literal["waste"]
    waste_usd_per_hour: Positive
    waste_percent: Percent
    for_hours: Annotated[int, Field(ge=1, le=168)] = 1
    overrides: tuple[WasteOverride, ...] = ()

    def for_unit(self, business_unit: str) -> "WasteRule":
        """The rule with one unit's thresholds."""
        for override in self.overrides:
            if override.business_unit == business_unit:
                changes = override.model_dump(exclude_none=True, exclude={"business_unit"})
                return self.model_copy(update=changes)
        return self


class SlackReceiver(Section):
    """A Slack incoming webhook; its address is the secret's value."""

    type: Literal["slack"]
    secret: SecretName


class EmailReceiver(Section):
    """The deployment's SNS email topic."""

    type: Literal["email"]


Receiver = Annotated[SlackReceiver | EmailReceiver, Field(discriminator="type")]


class AlertSettings(Section):
    """When to speak up, and to whom."""

    rules: tuple[WasteRule, ...] = ()
    receivers: tuple[Receiver, ...] = ()


Days = Annotated[int, Field(ge=35, le=3660)]


class RetentionSettings(Section):
    """How long records are kept, in days from when they are written; what is there already keeps its end."""

    lines_days: Days = 400
    """Pods, nodes, and the usage that hours are rated again from."""
    hours_days: Days = 1830
    """An hour's sums by business unit and namespace."""
    days_days: Days = 1830
    """Sums of days, and what was restated."""

    @model_validator(mode="after")
    def _sums_outlive_what_they_sum(self) -> "RetentionSettings":
        if not self.lines_days <= self.hours_days <= self.days_days:
            raise ValueError("lines_days must not be more than hours_days, nor hours_days more than days_days")
        return self

    def periods(self) -> Retention:
        """The same, as the ledger takes it."""
        return Retention(*(timedelta(days=days) for days in (self.lines_days, self.hours_days, self.days_days)))


class Settings(Section):
    """The whole document."""

    clusters: Annotated[tuple[ClusterSettings, ...], Field(min_length=1)]
    pricing: PricingSettings
    utilization: UtilizationSettings = UtilizationSettings()
    coverage: CoverageSettings = CoverageSettings()
    business_units: tuple[BusinessUnitSettings, ...] = ()
    cost_labels: Annotated[tuple[Name, ...], Field(max_length=5)] = ()
    """Pod labels carried on every line."""
    lookback_hours: Annotated[int, Field(ge=1, le=720)] = 168
    alerts: AlertSettings = AlertSettings()
    access: tuple[GrantSettings, ...] | None = None
    """Who may see what. Not there: all whom IAM lets in see everything. There: whom no grant names sees nothing."""

    @field_validator("access", mode="before")
    @classmethod
    def _access_is_a_list(cls, access: object) -> object:
        if access is None:  # a section left empty was hardly meant to let everybody in
            raise ValueError("must be a list of grants; leave the key out to let in all whom IAM lets in")
        return access

    retention: RetentionSettings = RetentionSettings()

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Settings":
        names = [cluster.name for cluster in self.clusters]
        units = [(unit.name, unit.since) for unit in self.business_units]
        for what, twice in (
            ("clusters", sorted({name for name in names if names.count(name) > 1})),
            ("business_units", sorted({name for name, since in units if units.count((name, since)) > 1})),
        ):
            if twice:
                raise ValueError(f"{what}: {twice[0]!r} is named twice")
        return self

    @model_validator(mode="after")
    def _blocks_have_a_cluster(self) -> "Settings":
        for block in self.pricing.capacity_blocks:
            self.pricing.cluster_of(block, tuple(cluster.name for cluster in self.clusters))
        return self

    @model_validator(mode="after")
    def _unused_commitments_have_a_cluster(self) -> "Settings":
        if self.pricing.cur is not None:
            self.pricing.cur.cluster_of_unused(tuple(cluster.name for cluster in self.clusters))
        return self

    def cluster(self, name: str) -> ClusterSettings | None:
        """The cluster of that name, if there is one."""
        return next((cluster for cluster in self.clusters if cluster.name == name), None)


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML keeps the last of two equal keys in silence; money does not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        own = (key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge")
        keys = [self.construct_object(key, deep=deep) for key in own]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"key {twice[0]!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def parse_settings(text: str) -> Settings:
    """Read and validate a settings document (YAML, of which JSON is a part).

    Raises:
        SettingsError: one sentence that names the key and what is allowed.
    """
    try:
        document = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where else ""
        raise SettingsError(f"settings are not valid YAML or JSON{line}: {getattr(error, 'problem', error)}") from error
    except RecursionError as error:
        raise SettingsError("settings are nested too deeply") from error
    if not isinstance(document, dict):
        raise SettingsError("settings must be a mapping with the keys " + ", ".join(Settings.model_fields))
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        raise SettingsError(f"settings: {_finding(error)}") from error


_PLAIN = {
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "union_tag_not_found": "type is needed: slack or email",
    "union_tag_invalid": "type must be slack or email",
}
"""What pydantic says in terms of Python, in terms of the document."""


def _finding(error: ValidationError) -> str:
    findings = error.errors(include_url=False)
    # A key that is misspelt is missing, too: the misspelling says more.
    finding = next((one for one in findings if one["type"] == "extra_forbidden"), findings[0])
    path = [part for part in finding["loc"] if part not in {"slack", "email", "[key]", "named", "own"}]
    where = re.sub(r"\.(\d+)", r"[\1]", ".".join(str(part) for part in path))
    if finding["type"] == "extra_forbidden":
        allowed = ", ".join(_fields_at(path[:-1]))
        return f"unknown key {where!r}; allowed there: {allowed}"
    if finding["type"] == "literal_error" and path == ["pricing", "split"]:
        expected = finding["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
        return f"{where}: must be {expected}, or a mapping with gpu, vcpu and gib"
    message = _PLAIN.get(finding["type"], finding["msg"].removeprefix("Value error, "))
    return f"{where}: {message}" if where else message


def _fields_at(path: list[int | str]) -> list[str]:
    """The keys that the section at a path takes."""
    section: Any = Settings
    for part in path:
        if isinstance(part, int):
            continue
        section = _section_of(section.model_fields[part].annotation)
    return [field.alias or name for name, field in section.model_fields.items()]


def _section_of(annotation: Any) -> Any:
    """The model inside `X | None`, `tuple[X, ...]` or `Annotated[X, …]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = [_section_of(argument) for argument in getattr(annotation, "__args__", ())]
    return next((found for found in inner if found is not None), None)
