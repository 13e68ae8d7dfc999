"""Who answers for a namespace or a pod: the settings' business units, the first that matches."""

from collections.abc import Iterator, Mapping, Sequence

from gpucost.core.attribution import BusinessUnit
from gpucost.core.metering.kubernetes_labels import NAMESPACE_LABELS_METRIC
from gpucost.sources.prometheus.queries import POD_LABELS, Queries
from gpucost_cli.rules.promql import Select, equals, first_that_matches, glob, marked, matches

UNIT = "business_unit"


def keys(units: Sequence[BusinessUnit]) -> str:
    """The labels by which owners are told apart: of namespaces, or of pods where labels of pods decide."""
    return "namespace, pod" if any(unit.pod_labels for unit in units) else "namespace"


def mapping(queries: Queries, units: Sequence[BusinessUnit], everything: Select) -> str:
    """1 for each namespace, or each pod, with its business unit as a label.

    Args:
        queries: make selectors.
        units: in their order.
        everything: makes selectors of all that has an owner.
    """
    by = keys(units)
    branches = [branch for unit in units for branch in _of_unit(queries, unit, by, everything)]
    own = f'label_replace(group by ({by}) ({everything()}), "{UNIT}", "$1", "namespace", "(.*)")'
    return first_that_matches([*branches, own], by)


def _of_unit(queries: Queries, unit: BusinessUnit, by: str, everything: Select) -> Iterator[str]:
    if unit.namespaces:
        named = matches("namespace", *(glob(one) for one in unit.namespaces))
        yield marked(f"group by ({by}) ({everything(named)})", UNIT, unit.name)
    if unit.namespace_labels:
        told = queries.select(NAMESPACE_LABELS_METRIC, *_equal(unit.namespace_labels))
        yield marked(f"group by ({by}) ({everything()} and on (namespace) {told})", UNIT, unit.name)
    if unit.pod_labels:
        told = queries.select(POD_LABELS, *_equal(unit.pod_labels))
        yield marked(f"group by ({by}) ({everything()} and on (namespace, pod) {told})", UNIT, unit.name)


def _equal(labels: Mapping[str, str]) -> list[str]:
    return [equals(name, value) for name, value in sorted(labels.items())]
