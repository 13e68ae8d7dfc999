"""PromQL for the business unit of each namespace or pod: the first in the settings that matches."""

from collections.abc import Iterator, Mapping, Sequence

from gpucost.core.attribution import BusinessUnit
from gpucost.core.metering.kubernetes_labels import NAMESPACE_LABELS_METRIC
from gpucost.sources.prometheus.queries import POD_LABELS, Queries
from gpucost_cli.rules.promql import SelectorBuilder, equals, first_available, glob_to_regex, matches, with_label

BUSINESS_UNIT_LABEL = "business_unit"


def owner_labels(units: Sequence[BusinessUnit]) -> str:
    """Return the labels that have one owner: `namespace`, or `namespace, pod` if pod labels decide."""
    return "namespace, pod" if any(unit.pod_labels for unit in units) else "namespace"


def owner_vector(queries: Queries, units: Sequence[BusinessUnit], select_owned: SelectorBuilder) -> str:
    """Return a vector of 1 for each namespace or pod, with its business unit as a label.

    Args:
        queries: builds selectors.
        units: in the order of the settings.
        select_owned: builds a selector of the series that have an owner, from matchers.
    """
    by = owner_labels(units)
    branches = [branch for unit in units for branch in _unit_branches(queries, unit, by, select_owned)]
    namespace_itself = (
        f'label_replace(group by ({by}) ({select_owned()}), "{BUSINESS_UNIT_LABEL}", "$1", "namespace", "(.*)")'
    )
    return first_available([*branches, namespace_itself], by)


def _unit_branches(queries: Queries, unit: BusinessUnit, by: str, select_owned: SelectorBuilder) -> Iterator[str]:
    if unit.namespaces:
        by_name = matches("namespace", *(glob_to_regex(pattern) for pattern in unit.namespaces))
        yield with_label(f"group by ({by}) ({select_owned(by_name)})", BUSINESS_UNIT_LABEL, unit.name)
    if unit.namespace_labels:
        labeled = queries.series_selector(NAMESPACE_LABELS_METRIC, *_label_matchers(unit.namespace_labels))
        yield with_label(
            f"group by ({by}) ({select_owned()} and on (namespace) {labeled})", BUSINESS_UNIT_LABEL, unit.name
        )
    if unit.pod_labels:
        labeled = queries.series_selector(POD_LABELS, *_label_matchers(unit.pod_labels))
        yield with_label(
            f"group by ({by}) ({select_owned()} and on (namespace, pod) {labeled})", BUSINESS_UNIT_LABEL, unit.name
        )


def _label_matchers(labels: Mapping[str, str]) -> list[str]:
    return [equals(name, value) for name, value in sorted(labels.items())]
