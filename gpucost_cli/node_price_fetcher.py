"""Fetches spot and on-demand prices of a cluster's nodes from AWS, for attribution without a deployment."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from gpucost.core.errors import SourceError
from gpucost.core.metering.usage import Usage
from gpucost.core.pricing.prices import Price, attributes_of_node
from gpucost.settings.pricing import PricingSettings
from gpucost.sources.aws_prices import AwsPriceList, Ec2SpotHistory
from gpucost_cli.aws_access import AwsAccess

FETCHED_SOURCES = frozenset({"spot", "on-demand"})


class NodePriceFetcher:
    """Fetches the prices of the nodes in some hours' usage, each price once.

    What a source does not answer is reported, and not asked for again.

    Args:
        pricing: the settings, with the sources, operating systems and tenancy.
        clients: returns a client of a service in a region.
        since: start of the first hour, from which spot prices are fetched.
        now: the current time.
        warn: reports in a sentence which prices are missing, and why.
    """

    def __init__(
        self,
        pricing: PricingSettings,
        clients: Callable[[str, str], Any],
        since: datetime,
        now: datetime,
        *,
        warn: Callable[[str], None],
    ) -> None:
        self._pricing = pricing
        self._spot = Ec2SpotHistory(clients)
        self._price_list = AwsPriceList(clients)
        self._since = since
        self._now = now
        self._warn = warn
        self._fetched_types: dict[tuple[str, str], set[str]] = {}
        self._prices: list[Price] = []

    def __call__(self, usages: Sequence[Usage]) -> Sequence[Price]:
        """Return the prices of these nodes and of those of earlier calls, of all sources and regions that answer."""
        return self.prices_of(
            attributes_of_node(holder.node, usage.cluster)
            for usage in usages
            for holder in (usage.pods if usage.nodes is None else usage.nodes)
        )

    def prices_of(self, nodes: Iterable[Mapping[str, str]]) -> Sequence[Price]:
        """Return the prices of nodes with these attributes, and of those of earlier calls."""
        types: dict[tuple[str, str], set[str]] = {}
        for attributes in nodes:
            region, instance_type = attributes["region"], attributes["instance_type"]
            if region and instance_type:
                types.setdefault(("on-demand", region), set()).add(instance_type)
                if attributes["capacity_type"] == "spot":
                    types.setdefault(("spot", region), set()).add(instance_type)
        for (source, region), names in sorted(types.items()):
            fetched_types = self._fetched_types.setdefault((source, region), set())
            missing = names - fetched_types
            if not missing or source not in self._pricing.ordered_sources:
                continue
            try:
                self._prices += self._fetch(source, region, missing)
            except SourceError as error:
                self._warn(f"{source} prices of {region} are not used: {error}")
            fetched_types |= missing
        return self._prices

    def _fetch(self, source: str, region: str, types: Collection[str]) -> list[Price]:
        systems = self._pricing.operating_systems
        if source == "spot":
            return self._spot.fetch(region, types, systems, since=self._since, now=self._now)
        tenancy = self._pricing.on_demand.tenancy
        return self._price_list.fetch(region, types, systems, tenancy=tenancy, now=self._now)


def price_fetcher_of(
    pricing: PricingSettings, since: datetime, now: datetime, aws: AwsAccess
) -> NodePriceFetcher | None:
    """Return what fetches AWS's prices; None if the settings do not need them or there are no AWS credentials."""
    if FETCHED_SOURCES.isdisjoint(pricing.ordered_sources) or aws.clients is None:
        return None
    return NodePriceFetcher(pricing, aws.clients, since, now, warn=aws.warn)
