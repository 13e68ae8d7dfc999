"""Extended resources of which metering does not know whether they are GPUs, by node."""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from gpucost.core.metering.observations import Unexplained
from gpucost.sources.prometheus.queries import ADVERTISED, REQUESTED
from gpucost.sources.prometheus.tables import Labels, Rows, exported_label

_DESCRIPTIONS = {ADVERTISED: "advertised units of", REQUESTED: "requested units of"}


def unknown_resources(rows: Mapping[str, Rows], cluster: str) -> list[Unexplained]:
    """What nodes advertise and pods request of resources that are not known.

    Args:
        rows: results of `unknown_resource_queries`, by statistic.
        cluster: the cluster's name in the settings.
    """
    return [
        Unexplained(
            description,
            resource,
            amount,
            node,
            f"Settings, cluster {cluster}: units: {{{resource}: N}}, where a unit is N GPUs: 1, a part such as 0.25, "
            "or 0 if it is no GPU",
        )
        for statistic, description in _DESCRIPTIONS.items()
        if statistic in rows
        for (node, resource), amount in _by_node(rows[statistic]).items()
    ]


def _by_node(rows: Iterable[tuple[Labels, Decimal]]) -> dict[tuple[str, str], Decimal]:
    """Amounts by node and resource; each shard of a query has a part."""
    amounts: dict[tuple[str, str], Decimal] = {}
    for labels, amount in rows:
        key = exported_label(labels, "node"), labels.get("resource", "")
        if amount.is_finite() and amount > 0:
            amounts[key] = amounts.get(key, Decimal(0)) + amount
    return amounts
