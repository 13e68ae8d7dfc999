"""The settings document: which clusters, how GPUs are priced and measured, who owns what, when to speak up.

One YAML or JSON document (design §6). Unknown keys are errors that name the key; secrets are never in it, only
names of Secrets Manager secrets.
"""

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, TypeVar
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from gpucost.core.errors import SettingsError
from gpucost.core.hours import floor_hour
from gpucost.core.metering.signals import SIGNALS
from gpucost.settings.access import GrantSettings
from gpucost.settings.pricing import PricingSettings
from gpucost.settings.retention import RetentionSettings
from gpucost.settings.section import (
    Address,
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
from gpucost.settings.sources import LabelName, SourcesSettings

Share = Annotated[Decimal, Field(ge=0, le=1)]
ClusterName = Annotated[
    str,
    matching_pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", "up to 100 letters, digits, _, . and -, the first a letter or a digit"),
]
UtilizationSource = Literal["pod", "shared", "node", "cluster"]


SAMPLES_PER_QUERY = 500_000_000
"""A day of 10,000 pods takes 70 million, all its queries together; a query beyond this one lost its selector."""


class PrometheusSettings(Section):
    """Where a cluster's metrics are and how to be let in."""

    url: Address
    """Base address; `/api/v1/query` is added. For AMP: `https://aps-workspaces.<region>.amazonaws.com/workspaces/<id>`."""
    auth: Literal["none", "sigv4", "bearer"] = "none"
    region: Region | None = None
    role_arn: QueryRole | None = None
    external_id: ExternalId | None = None
    secret: SecretName | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 60
    retention_days: Annotated[int, Field(ge=1, le=1095)] | None = None
    """How long the metrics are kept; asked of the server where it tells (AMP does not: its default of 150 is taken)."""
    max_samples_per_query: Annotated[int, Field(ge=1_000_000, le=10**12)] | None = None
    """AMP refuses, unbilled, what would process more; 500 million ($0.05) where not given. With auth: sigv4 only."""

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
        if self.auth != "sigv4" and self.max_samples_per_query is not None:
            raise ValueError("max_samples_per_query goes with auth: sigv4 only; no other server knows it")
        if self.external_id and not self.role_arn:
            raise ValueError("external_id goes with role_arn only")
        if (self.auth == "bearer") != (self.secret is not None):
            raise ValueError("secret goes with auth: bearer, and is needed there")
        return self

    def sample_limit(self) -> int | None:
        """What one query may process; None where the server has no such limit."""
        return (self.max_samples_per_query or SAMPLES_PER_QUERY) if self.auth == "sigv4" else None


class ClusterSettings(Section):
    """One EKS cluster."""

    name: ClusterName
    prometheus: PrometheusSettings
    selector: dict[LabelName, str] = Field(default_factory=dict)
    """Matchers added to every query, where several clusters share a workspace."""
    sources: SourcesSettings = SourcesSettings()
    """Which series of each source are trusted, by their labels; all where nothing is said."""
    slices_per_gpu: Annotated[int, Field(ge=1, le=64)] | None = None
    """What a unit of `nvidia.com/gpu` is (1/n of a GPU), where the node does not say."""


class UtilizationSettings(Section):
    """Which signal says how busy a GPU is, and which sources of it are allowed, in order of preference."""

    signal: Name = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    scale: Positive | None = None
    """The signal's value at full use; the catalogue's own where not given."""
    sources: Annotated[tuple[UtilizationSource, ...], Field(min_length=1)] = ("pod", "shared")

    @model_validator(mode="before")
    @classmethod
    def _takes_the_former_name(cls, section: object) -> object:
        """Read `ladder`, the former name of `sources`, until the next release."""
        if not isinstance(section, dict) or "ladder" not in section:
            return section
        if "sources" in section:
            raise ValueError("`ladder` is the former name of `sources`; keep `sources` only")
        return {("sources" if key == "ladder" else key): setting for key, setting in section.items()}

    @field_validator("signal")
    @classmethod
    def _signal_is_known(cls, signal: str) -> str:
        if signal not in SIGNALS:
            raise ValueError(f"{signal!r} is not a known signal; allowed: {', '.join(SIGNALS)}")
        return signal

    @field_validator("sources")
    @classmethod
    def _sources_are_unique(cls, sources: tuple[UtilizationSource, ...]) -> tuple[UtilizationSource, ...]:
        if len(set(sources)) < len(sources):
            raise ValueError("names a source twice")
        return sources


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
        return day_as_midnight(since)

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


class Settings(Section):
    """The sections that the core reads. Features add theirs in subclasses; see `gpucost.settings_document`."""

    tagged_lists: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {}
    """Lists whose entries are one of several models: the key that tells which, and its values."""

    clusters: Annotated[tuple[ClusterSettings, ...], Field(min_length=1)]
    pricing: PricingSettings
    utilization: UtilizationSettings = UtilizationSettings()
    coverage: CoverageSettings = CoverageSettings()
    business_units: tuple[BusinessUnitSettings, ...] = ()
    cost_labels: Annotated[tuple[Name, ...], Field(max_length=5)] = ()
    """Pod labels carried on every line."""
    lookback_hours: Annotated[int, Field(ge=1, le=720)] = 168
    retention: RetentionSettings = RetentionSettings()
    access: tuple[GrantSettings, ...] | None = None
    """Who may see what. Not there: all whom IAM lets in see everything. There: whom no grant names sees nothing."""

    @field_validator("access", mode="before")
    @classmethod
    def _access_is_a_list(cls, access: object) -> object:
        if access is None:  # a section left empty was hardly meant to let everybody in
            raise ValueError("must be a list of grants; leave the key out to let in all whom IAM lets in")
        return access

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Settings":
        names = [cluster.name for cluster in self.clusters]
        units = [(unit.name, unit.since) for unit in self.business_units]
        for section, repeated in (
            ("clusters", duplicates(names)),
            ("business_units", [name for name, _ in duplicates(units)]),
        ):
            if repeated:
                raise ValueError(f"{section}: {min(repeated)!r} is named twice")
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

    def check_new(self) -> None:
        """Check what a document that is pushed must fulfil beyond one that is already stored.

        Raises:
            SettingsError: credentials would go to an address without TLS.
        """
        for key, address in self.addresses_with_credentials():
            if not protects_secrets(address):
                raise SettingsError(f"settings: {key}: {address} has no TLS, and credentials are sent to https:// only")

    def addresses_with_credentials(self) -> Iterator[tuple[str, str]]:
        """Keys and values of the addresses to which credentials are sent."""
        for index, cluster in enumerate(self.clusters):
            if cluster.prometheus.auth != "none":
                yield f"clusters[{index}].prometheus.url", cluster.prometheus.url


SettingsModel = TypeVar("SettingsModel", bound=Settings)


_KEY_SHOWN = 60
"""Characters of a key that a finding repeats."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML keeps the last of two equal keys in silence; money does not.

    Not `CSafeLoader`, which takes a tenth of the time: the process dies of a document that is nested too deeply.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, AttributeError) as error:  # a date such as 2026-02-30, or a number of 5,000 digits
            kind, value = node.tag.rpartition(":")[2], str(node.value)[:_KEY_SHOWN]
            problem = f"{value!r} is not a valid {kind}; correct it, or put it in quotes if it is text"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=deep)
            if not isinstance(key, Hashable):
                break  # the base class says so
            if key in seen:
                problem = f"key {str(key)[:_KEY_SHOWN]!r} stands twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _document(text: str) -> Any:
    """JSON by its own reader, which takes a hundredth of the time; YAML, and JSON that is not valid, by YAML's."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except ValueError:
        return yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a subclass of SafeLoader


def json_form(text: str) -> str | None:
    """A YAML settings document as JSON; None where it is JSON, or holds what JSON cannot."""
    try:
        json.loads(text)
    except ValueError:
        try:
            return json.dumps(_document(text), default=_iso, ensure_ascii=False, separators=(",", ":"))
        except (TypeError, ValueError):
            return None
    return None


def _iso(value: object) -> str:
    if isinstance(value, date):  # or a datetime, which is one
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def parse_document(text: str, model: type[SettingsModel]) -> SettingsModel:
    """Read and validate a settings document (YAML, of which JSON is a part).

    Args:
        text: the document.
        model: the sections that it may have.

    Raises:
        SettingsError: one sentence that names the key and what is allowed.
    """
    try:
        document = _document(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where else ""
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise SettingsError(f"settings are not valid YAML or JSON{line}: {problem}") from error
    except RecursionError as error:
        raise SettingsError("settings are nested too deeply") from error
    if not isinstance(document, dict):
        raise SettingsError("settings must be a mapping with the keys " + ", ".join(model.model_fields))
    try:
        settings = model.model_validate(document)
        settings.model_dump_json()
    except ValidationError as error:
        raise SettingsError(f"settings: {_finding(error, model)}") from error
    except PydanticSerializationError as error:
        raise SettingsError(
            r"settings hold half a character (a lone surrogate such as \ud800); write the whole character"
        ) from error
    return settings


_PLAIN = {
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
}
"""What pydantic says in terms of Python, in terms of the document."""


def _finding(error: ValidationError, model: type[Settings]) -> str:
    findings = error.errors(include_url=False)
    # A key that is misspelt is missing, too: the misspelling says more.
    finding = next((one for one in findings if one["type"] == "extra_forbidden"), findings[0])
    path = [part for place, part in enumerate(finding["loc"]) if not _is_tag(finding["loc"], place, model)]
    where = re.sub(r"\.(\d+)", r"[\1]", ".".join(str(part) for part in path))
    if finding["type"] == "extra_forbidden":
        allowed = ", ".join(_fields_at(finding["loc"][:-1], model))
        return f"unknown key {where!r}; allowed there: {allowed}"
    if finding["type"] == "literal_error" and path == ["pricing", "split"]:
        expected = finding["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
        return f"{where}: must be {expected}, or a mapping with gpu, vcpu and gib"
    if finding["type"].startswith("union_tag"):
        key, tags = next(tagged for name, tagged in model.tagged_lists.items() if name in path)
        *most, last = tags
        verb = "must be" if finding["type"] == "union_tag_invalid" else "is needed:"
        return f"{where}: {key} {verb} {', '.join(most)} or {last}"
    message = _PLAIN.get(finding["type"], finding["msg"].removeprefix("Value error, "))
    return f"{where}: {message}" if where else message


def _is_tag(path: tuple[int | str, ...], place: int, model: type[Settings]) -> bool:
    """Whether a part of a finding's place is pydantic's word for one of several models, and not of the document."""
    part = path[place]
    if part in {"[key]", "policy", "custom"}:
        return True
    return place > 0 and isinstance(path[place - 1], int) and any(part in tags for _, tags in model.tagged_lists.values())


def _fields_at(path: tuple[int | str, ...], model: type[Settings]) -> list[str]:
    """The keys that the section at a path takes."""
    found: list[Any] = [model]
    for place, part in enumerate(path):
        if isinstance(part, int) or part in {"[key]", "policy", "custom"}:
            continue
        if _is_tag(path, place, model):
            found = [one for one in found if part in _tags(one)]
        else:
            found = _sections_of(found[0].model_fields[part].annotation)
    return [field.alias or name for name, field in found[0].model_fields.items()]


def _tags(section: Any) -> tuple[Any, ...]:
    """What tells a model from the others of its kind."""
    return tuple(
        value
        for name in ("rule", "type")
        if name in section.model_fields
        for value in getattr(section.model_fields[name].annotation, "__args__", ())
    )


def _sections_of(annotation: Any) -> list[Any]:
    """The models inside `X | None`, `tuple[X, ...]`, `Annotated[X, …]` or a union of several."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in getattr(annotation, "__args__", ()) for found in _sections_of(argument)]
