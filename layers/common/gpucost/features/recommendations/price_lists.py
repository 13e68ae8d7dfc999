"""List prices and spot prices of nodes from the price book, in USD, the currency of AWS's price lists."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, Protocol

from gpucost.core.pricing.list_price_table import HOURLY_PRICES
from gpucost.core.pricing.list_prices import list_price_label
from gpucost.core.pricing.prices import Price, PriceSource
from gpucost.features.recommendations.history import LookBack, PoolKey, ReservedPrice, SpotPrice
from gpucost.features.recommendations.pools import gpus_per_node
from gpucost.settings import CoreSettings
from gpucost.settings.pricing import RateSettings
from gpucost.storage.price_book import PricesInForce

_FAMILY_PATTERN = re.compile(r"[a-z0-9-]+\.\*")
"""A pattern of instance types that matches all sizes of one family."""


class PriceBookReader(Protocol):
    """Reads the prices that recommendations need from the price book."""

    def newest(self, source: Literal["spot", "on-demand"]) -> list[Price]:
        """The newest prices of a source."""
        ...

    def in_force(
        self, start: datetime, end: datetime, *, sources: Collection[PriceSource] | None = None
    ) -> PricesInForce:
        """The prices that were valid at any time of `[start, end)`."""
        ...


class NodePrices(NamedTuple):
    """Prices of nodes by instance type, in USD per node-hour."""

    on_demand: Mapping[str, float]
    spot: Mapping[str, SpotPrice]


def node_list_prices(price_book: PriceBookReader) -> dict[str, float]:
    """On-demand prices by instance type in USD per node-hour, without types whose price differs by region."""
    prices_by_type: dict[str, set[float]] = {}
    for price in _node_prices_in_usd(price_book.newest("on-demand")):
        if price.valid_to is None:
            prices_by_type.setdefault(price.applies_to["instance_type"], set()).add(float(price.amount))
    return {name: prices.pop() for name, prices in prices_by_type.items() if len(prices) == 1}


def built_in_list_prices(look_back: LookBack) -> dict[str, float]:
    """The built-in list prices in USD per node-hour of the instance types that were charged at them in one region."""
    prices = {}
    for instance_type, regions in look_back.built_in_price_regions.items():
        amounts = [HOURLY_PRICES.get(region, {}).get(instance_type) for region in regions]
        if len(amounts) == 1 and amounts[0] is not None:
            prices[instance_type] = float(amounts[0])
    return prices


def node_spot_prices(price_book: PriceBookReader, start: datetime, end: datetime) -> dict[str, SpotPrice]:
    """Spot prices of a period by instance type, in the most expensive zone on average.

    Raises:
        SourceError: the price book could not be read.
    """
    zones: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for price in _node_prices_in_usd(price_book.in_force(start, end, sources={"spot"}).prices):
        since, until = max(price.valid_from or start, start), min(price.valid_to or end, end)
        if price.source == "spot" and since < until:
            facts = price.applies_to
            key = facts["instance_type"], facts.get("region", ""), facts.get("zone", "")
            zones.setdefault(key, []).append(((until - since).total_seconds(), float(price.amount)))
    prices_by_type: dict[str, SpotPrice] = {}
    for (name, _, _), parts in zones.items():
        mean = sum(seconds * usd for seconds, usd in parts) / sum(seconds for seconds, _ in parts)
        if name not in prices_by_type or mean > prices_by_type[name].usd:
            prices_by_type[name] = SpotPrice(mean, min(usd for _, usd in parts), max(usd for _, usd in parts))
    return prices_by_type


def reserved_prices(settings: CoreSettings, look_back: LookBack, at: datetime) -> dict[str, ReservedPrice]:
    """Prices of reserved capacity by instance type: the first matching rate of the settings.

    A rate for a family (`instance_type: "g5.*"`) is that of a Savings Plan, which covers all sizes. Rates for single
    pools, regions or zones are left out, because a commitment is not bought for one of them.

    Args:
        settings: the settings; only rates with `capacity_type: reserved` count.
        look_back: has the instance types and their list prices.
        at: the time at which the rates are valid.
    """
    prices: dict[str, ReservedPrice] = {}
    built_in = built_in_list_prices(look_back)
    for key in sorted(look_back.pools):
        gpus, list_price = gpus_per_node(look_back.pools[key]), look_back.list_prices.get(key.instance_type)
        for rate in settings.pricing.rates:
            if key.instance_type in prices or not _is_reserved_rate_for(rate, look_back.cluster, key, at):
                continue
            usd, basis = None, ""
            if rate.node_hourly_usd is not None:
                usd = float(rate.node_hourly_usd)
            elif rate.gpu_hourly_usd is not None:
                usd = float(rate.gpu_hourly_usd) * gpus
            elif rate.percent_of_on_demand is not None and list_price is not None:
                usd = float(rate.percent_of_on_demand) / 100 * list_price
                if built_in.get(key.instance_type) == list_price:
                    (region,) = look_back.built_in_price_regions[key.instance_type]
                    basis = f"{rate.percent_of_on_demand.normalize():f}% of the {list_price_label(region)}"
            if usd:
                pattern = rate.instance_type or ""
                scope = pattern if _FAMILY_PATTERN.fullmatch(pattern) else key.instance_type
                prices[key.instance_type] = ReservedPrice(usd, scope, basis)
    return prices


def _is_reserved_rate_for(rate: RateSettings, cluster: str, key: PoolKey, at: datetime) -> bool:
    facts = rate.attribute_patterns()
    is_valid = (rate.since is None or rate.since <= at) and (rate.until is None or at < rate.until)
    return (
        is_valid
        and facts.get("capacity_type") == "reserved"
        and not facts.keys() & {"node_pool", "region", "zone"}
        and fnmatchcase(cluster, facts.get("cluster", "*"))
        and fnmatchcase(key.instance_type, facts.get("instance_type", "*"))
        and fnmatchcase(key.gpu_model, facts.get("gpu_model", "*"))
    )


def _node_prices_in_usd(prices: Iterable[Price]) -> list[Price]:
    return [
        price
        for price in prices
        if price.unit == "node-hour" and price.currency == "USD" and "instance_type" in price.applies_to
    ]
