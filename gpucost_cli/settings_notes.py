"""What `gpucost settings check` notes about valid settings: entries that have another effect than they seem to."""

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from fnmatch import filter as matching_names
from fnmatch import fnmatchcase
from itertools import combinations
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gpucost_cli.documentation import page_path

if TYPE_CHECKING:
    from gpucost.settings import BusinessUnitSettings, ClusterSettings, CoreSettings
    from gpucost.settings_document import SettingsDocument

_PERCENT_KEYS = ("waste_percent", "utilization_percent", "percent", "percent_of_on_demand")
_AMP_HOST = re.compile(r"aps-workspaces\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
_PAGE_OR_ENDPOINT = re.compile(
    r"/(graph|query|targets|classic/\w+|api/v1/(labels?|series|targets|rules|alerts|metadata|read|status)(/.*)?)/?$"
)
"""Pages and endpoints of Prometheus' API that people copy. Those of queries are refused."""
_OVERRIDE_MATCHERS = frozenset({"business_unit", "cluster", "namespace", "node_pool", "model"})
_WILDCARDS = re.compile(r"[*?\[]")
_WILDCARD_PARTS = re.compile(r"[*?]|\[[^]]*\]")
_NO_NAMESPACE = re.compile(r"[^a-z0-9-]")
"""Characters that no namespace has: its name is an RFC 1123 label."""


def notes_on(settings: "SettingsDocument") -> list[str]:
    """A sentence for each entry of valid settings that probably does not do what its author meant."""
    return [
        *_prometheus_addresses(settings),
        *_clusters_with_the_same_series(settings),
        *_patterns_of_selectors(settings),
        *_unknown_business_units(settings),
        *_units_without_pods(settings),
        *_impossible_namespaces(settings),
        *_covered_namespaces(settings),
        *_patterns_of_labels(settings),
        *_names_of_prometheus(settings),
        *_unknown_clusters(settings),
        *_unknown_capacity_types(settings),
        *_overrides_without_effect(settings),
        *_small_percents(settings),
        *_prices_by_hand_only(settings),
        *_sources_after_constant(settings),
        *_sources_in_another_currency(settings),
        *_disabled_inference(settings),
        *_receivers(settings),
    ]


def units_without_namespace(
    settings: "CoreSettings", namespaces: Collection[str], hour: datetime
) -> list["BusinessUnitSettings"]:
    """Return the units in force that own namespaces only by patterns, of which none matches any of the namespaces."""
    latest = {
        unit.name: unit
        for unit in sorted(settings.business_units, key=lambda unit: unit.since.timestamp() if unit.since else 0)
        if unit.since is None or unit.since <= hour
    }
    return [
        unit
        for unit in settings.business_units
        if latest.get(unit.name) is unit
        and unit.namespaces
        and not (unit.namespace_labels or unit.pod_labels)
        and not any(matching_names(namespaces, pattern) for pattern in unit.namespaces)
    ]


def _prometheus_addresses(settings: "SettingsDocument") -> Iterator[str]:
    """Notes on addresses of AMP without signed queries, and on those of a page or of an endpoint of Prometheus."""
    for index, cluster in enumerate(settings.clusters):
        prometheus, key = cluster.prometheus, f"clusters[{index}].prometheus"
        address = urlsplit(prometheus.url)
        region = _AMP_HOST.fullmatch(address.hostname or "")
        if region and prometheus.auth != "sigv4":
            yield (
                f"{key}: Amazon Managed Service for Prometheus answers only signed queries. Set auth: sigv4 and "
                f"region: {region[1]}"
            )
        elif region and prometheus.region != region[1]:
            yield (
                f"{key}.region: the workspace is in {region[1]}, but the region is {prometheus.region}, for which "
                f"Amazon Managed Service for Prometheus refuses the signature. Set region: {region[1]}"
            )
        if _PAGE_OR_ENDPOINT.search(address.path) or address.query or address.fragment:
            base = _PAGE_OR_ENDPOINT.sub("", address._replace(query="", fragment="").geturl())
            yield f"{key}.url: queries append /api/v1/query to {prometheus.url}. Write the base URL, probably {base}"


def _clusters_with_the_same_series(settings: "SettingsDocument") -> Iterator[str]:
    """Notes on pairs of clusters whose queries match the same series, so that their nodes count twice."""
    for first, second in combinations(settings.clusters, 2):
        matchers, others = first.selector.items(), second.selector.items()
        if _server(first) == _server(second) and (matchers <= others or others <= matchers):
            yield (
                f"clusters: {first.name} and {second.name} read the same series of {first.prometheus.url}, so nodes "
                "count twice. Give each a selector with another value of a label, such as "
                f"selector: {{cluster: {first.name}}}"
            )


def _server(cluster: "ClusterSettings") -> tuple[object, ...]:
    """What queries of a cluster are sent to: an address, and the tenant that headers or a token name."""
    prometheus = cluster.prometheus
    return prometheus.url.rstrip("/"), prometheus.headers, prometheus.secret_headers, prometheus.secret


def _patterns_of_selectors(settings: "SettingsDocument") -> Iterator[str]:
    """Notes on regular expressions and patterns in label matchers, which compare values as they are."""
    for index, cluster in enumerate(settings.clusters):
        for label, value in cluster.selector.items():
            if re.search(r"[*?|^$]", value):
                yield (
                    f"clusters[{index}].selector.{label}: {value!r} is compared as it is, and is no pattern. Write the "
                    "label's value"
                )


def _unknown_business_units(settings: "SettingsDocument") -> Iterator[str]:
    """Notes on names of units in grants and in alert rules that no unit of the settings has."""
    named = [
        (f"access[{index}].roles", role.removeprefix("bu:"))
        for index, grant in enumerate(settings.access or ())
        for role in grant.roles
        if role[:3] == "bu:"
    ]
    for key, rule in _rules(settings):
        named += [(f"{key}.scope.business_units", pattern) for pattern in rule.scope.business_units]
        named += [
            (f"{key}.overrides[{index}].business_unit", override.business_unit)
            for index, override in enumerate(_overrides(rule))
            if override.business_unit is not None
        ]
    names = [unit.name for unit in settings.business_units]
    for key, name in named:
        if not _matches_any(name, names):
            yield (
                f"{key}: {name!r} is no business unit of these settings. It has an effect only if a namespace has this "
                "name"
            )


def _units_without_pods(settings: "SettingsDocument") -> Iterator[str]:
    """A note on the first unit that owns every namespace, if others follow it."""
    for index, unit in enumerate(settings.business_units[:-1]):
        later = dict.fromkeys(
            later.name
            for later in settings.business_units[index + 1 :]
            if later.name != unit.name and (later.namespaces or later.namespace_labels or later.pod_labels)
        )
        if "*" in unit.namespaces and unit.since is None and later:
            yield (
                f"business_units[{index}] ({unit.name}) owns the pods of every namespace, and the first unit that "
                f"matches owns a pod, so these own none: {', '.join(later)}. Move {unit.name} to the end"
            )
            return


def _covered_namespaces(settings: "SettingsDocument") -> Iterator[str]:
    """Notes on namespaces that an earlier unit owns already. Units with several entries change over time."""
    names = [unit.name for unit in settings.business_units]
    earlier: list[tuple[str, str]] = []
    for index, unit in enumerate(settings.business_units):
        for namespace in unit.namespaces:
            for owner, pattern in earlier:
                if _covers(pattern, namespace):
                    yield (
                        f"business_units[{index}].namespaces: {namespace!r} has no effect: {owner} comes before and "
                        f"owns these pods by {pattern!r}, and the first unit that matches owns a pod. Move {unit.name} "
                        f"before {owner}"
                    )
                    break
        if names.count(unit.name) == 1 and unit.since is None:
            earlier += [(unit.name, pattern) for pattern in unit.namespaces if pattern != "*"]


def _covers(pattern: str, other: str) -> bool:
    """Whether a pattern matches all names that another one matches; False where that is not certain."""
    if not _WILDCARDS.search(other):
        return fnmatchcase(other, pattern)
    return pattern == other or (not re.search(r"[?\[]", pattern) and fnmatchcase(other, pattern))


def _impossible_namespaces(settings: "SettingsDocument") -> Iterator[str]:
    """Notes on patterns that can match no namespace, such as regular expressions."""
    patterns = [
        (f"business_units[{index}].namespaces", pattern)
        for index, unit in enumerate(settings.business_units)
        for pattern in unit.namespaces
    ]
    for key, rule in _rules(settings):
        patterns += [(f"{key}.scope.namespaces", pattern) for pattern in rule.scope.namespaces]
    for key, pattern in patterns:
        if character := _NO_NAMESPACE.search(_WILDCARD_PARTS.sub("", pattern)):
            shell_pattern = pattern.strip("^$").replace(".*", "*").replace(".+", "?*").lower()
            is_valid = not _NO_NAMESPACE.search(_WILDCARD_PARTS.sub("", shell_pattern))
            probably = f", probably {shell_pattern!r}" if is_valid else ", such as team-*"
            yield (
                f"{key}: {pattern!r} matches no namespace, because no namespace contains {character[0]!r}. "
                f"Write a shell pattern{probably}"
            )


def _patterns_of_labels(settings: "SettingsDocument") -> Iterator[str]:
    for index, unit in enumerate(settings.business_units):
        for section, labels in (("namespace_labels", unit.namespace_labels), ("pod_labels", unit.pod_labels)):
            for key, value in labels.items():
                if _WILDCARDS.search(value):
                    yield (
                        f"business_units[{index}].{section}.{key}: {value!r} is compared as it is. Only namespaces "
                        "take patterns"
                    )


def _names_of_prometheus(settings: "SettingsDocument") -> Iterator[str]:
    """Notes on labels of pods and namespaces that are spelled like the labels of kube-state-metrics' series."""
    sections = [("cost_labels", settings.cost_labels)]
    for index, unit in enumerate(settings.business_units):
        sections.append((f"business_units[{index}].namespace_labels", tuple(unit.namespace_labels)))
        sections.append((f"business_units[{index}].pod_labels", tuple(unit.pod_labels)))
    for key, labels in sections:
        for label in labels:
            if label.startswith("label_"):
                yield (
                    f"{key}: {label!r} is the name in Prometheus. Write the label's name in Kubernetes, probably "
                    f"{label.removeprefix('label_')}"
                )


def _unknown_clusters(settings: "SettingsDocument") -> Iterator[str]:
    """Notes on patterns of clusters that match none."""
    names = [cluster.name for cluster in settings.clusters]
    patterns = [
        (f"pricing.{section}[{index}].cluster", entry.cluster)
        for section, entries in (("rates", settings.pricing.rates), ("discounts", settings.pricing.discounts))
        for index, entry in enumerate(entries)
        if entry.cluster is not None
    ]
    for key, rule in _rules(settings):
        patterns += [(f"{key}.scope.clusters", pattern) for pattern in rule.scope.clusters]
        named = [override.cluster for override in _overrides(rule) if override.cluster is not None]
        patterns += [(f"{key}.overrides", pattern) for pattern in named]
    for key, pattern in patterns:
        if not _matches_any(pattern, names):
            yield f"{key}: {pattern!r} matches none of the clusters {', '.join(names)}, so the entry has no effect"


def _unknown_capacity_types(settings: "SettingsDocument") -> Iterator[str]:
    from gpucost.core.metering.nodes import CAPACITY_TYPES

    sections = (("rates", settings.pricing.rates), ("discounts", settings.pricing.discounts))
    for section, entries in sections:
        for index, entry in enumerate(entries):
            pattern = entry.attribute_patterns().get("capacity_type")
            if pattern is not None and not matching_names(CAPACITY_TYPES, pattern):
                yield (
                    f"pricing.{section}[{index}].capacity_type: {pattern!r} matches none of "
                    f"{', '.join(CAPACITY_TYPES)}. It has an effect only if a node's label has another value"
                )


def _overrides_without_effect(settings: "SettingsDocument") -> Iterator[str]:
    """Notes on overrides that replace nothing, and on those that match everything."""
    for key, rule in _rules(settings):
        for index, override in enumerate(_overrides(rule)):
            keys = {name for name in type(override).model_fields if getattr(override, name) is not None}
            if not keys - _OVERRIDE_MATCHERS:
                values = [name for name in type(override).model_fields if name not in _OVERRIDE_MATCHERS]
                yield f"{key}.overrides[{index}]: has no effect, because it sets none of {', '.join(values)}"
            elif not keys & _OVERRIDE_MATCHERS:
                yield (
                    f"{key}.overrides[{index}]: applies to everything, because it names no business_unit, cluster or "
                    "other subject. Name one, or change the values of the rule"
                )


def _small_percents(settings: "SettingsDocument") -> Iterator[str]:
    sections: list[tuple[str, Any]] = [
        (f"pricing.{name}[{index}]", entry)
        for name, entries in (("discounts", settings.pricing.discounts), ("rates", settings.pricing.rates))
        for index, entry in enumerate(entries)
    ]
    for key, rule in _rules(settings):
        sections += [(key, rule), *((f"{key}.overrides[{n}]", override) for n, override in enumerate(_overrides(rule)))]
    for key, section in sections:
        for name in _PERCENT_KEYS:
            percent = getattr(section, name, None)
            if percent is not None and 0 < percent < 1:
                hundredfold = f"{(percent * 100).normalize():f}"
                yield f"{key}.{name}: {percent} means {percent}%. If {hundredfold}% is meant, write {hundredfold}"
        for percent in getattr(section, "percents", ()):
            if percent < 1:
                yield f"{key}.percents: {percent} means {percent}%. Percentages are numbers such as 80"
                break


def _prices_by_hand_only(settings: "SettingsDocument") -> Iterator[str]:
    if settings.pricing.ordered_sources == ("override",):
        yield (
            "pricing: the only source is override, the prices of gpucost prices set. Nodes without one have no cost; "
            "leave out the source for AWS's prices"
        )


def _sources_after_constant(settings: "SettingsDocument") -> Iterator[str]:
    sources = settings.pricing.ordered_sources
    if "constant" in sources[:-1]:
        ineffective = sources[sources.index("constant") + 1 :]
        yield (
            f"pricing.sources: {', '.join(ineffective)} never apply, because constant comes before and prices every "
            "node. Move constant to the end"
        )


def _sources_in_another_currency(settings: "SettingsDocument") -> Iterator[str]:
    """A note on AWS's prices, which are in USD or, in China, in CNY, if amounts have another currency and no price."""
    currency, sources = settings.pricing.currency, settings.pricing.ordered_sources
    if currency not in {"USD", "CNY"} and {"override", "spot", "on-demand", "list-price"}.issuperset(sources):
        yield (
            f"pricing.currency: AWS's prices are not in {currency}, and amounts are never converted, so nodes have no "
            "price. Add rates, the bill (cur) or constant, or leave out the currency"
        )


def _disabled_inference(settings: "SettingsDocument") -> Iterator[str]:
    keys = settings.inference.model_fields_set
    if keys and "enabled" not in keys:
        yield f"inference: {', '.join(sorted(keys))} has no effect without enabled: true"
    for unit in settings.business_units:
        if unit.consumers and settings.inference.consumer_label is None and settings.inference.gateway is None:
            yield (
                f"business_units: the consumers of {unit.name} have no effect without inference.consumer_label or "
                "inference.gateway, which say who sent requests"
            )


def _receivers(settings: "SettingsDocument") -> Iterator[str]:
    receivers = settings.alerts.receivers
    if settings.alerts.rules and not receivers:
        yield "alerts has rules but no receivers: alerts are only listed by gpucost alerts list"
    if receivers and not settings.alerts.rules:
        page = page_path("docs/how-to/alerts.md")
        yield f"alerts has receivers but no rules: they are never notified. {page} has rules to copy"
    unnamed = [receiver.type for receiver in receivers if receiver.name is None]
    for kind in dict.fromkeys(kind for kind in unnamed if unnamed.count(kind) > 1):
        yield f"{unnamed.count(kind)} receivers without a name are all {kind!r}: rules cannot choose between them"


def _rules(settings: "SettingsDocument") -> list[tuple[str, Any]]:
    return [(f"alerts.rules[{index}]", rule) for index, rule in enumerate(settings.alerts.rules)]


def _overrides(rule: Any) -> Iterable[Any]:
    return getattr(rule, "overrides", ())


def _matches_any(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)
