"""Collects the prices in force in a cluster's hours from the settings, the price book and the bill."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from msgspec.structs import replace

from gpucost.core.hours import HOUR, floor_day
from gpucost.core.metering.instance_types import (
    CATALOG,
    GPUS_OF_INSTANCE,
    NEURON_OF_INSTANCE,
    SAGEMAKER_PREFIX,
    devices_of_instance,
)
from gpucost.core.pricing.bill import Bill
from gpucost.core.pricing.list_prices import list_prices
from gpucost.core.pricing.node_costs import CapacityBlock, Pricing
from gpucost.core.pricing.prices import (
    LIST_PRICE_SOURCES,
    SPLIT_POLICIES,
    Discount,
    InstanceShape,
    Price,
    PriceBook,
    PriceUnit,
    SplitPolicy,
    custom_policy,
)
from gpucost.settings import CoreSettings
from gpucost.settings.pricing import CustomSplit, DiscountSettings, PricingSettings, RateSettings
from gpucost.storage.bill_store import BillStore
from gpucost.storage.price_book import PriceStore


class Pricer:
    """Collects the prices of some hours from the settings, the price book and the bill.

    Args:
        prices: the price book.
        bills: the billed hours.
    """

    def __init__(self, prices: PriceStore, bills: BillStore) -> None:
        self._prices = prices
        self._bills = bills

    def pricing_of_hours(self, settings: CoreSettings, hours: Sequence[datetime]) -> dict[datetime, Pricing]:
        """Return the prices in force in each hour; the hours are at most 35 days apart. Needs a few requests.

        Raises:
            SourceError: the book or the bill could not be read.
        """
        start, end = min(hours), max(hours) + HOUR
        order = settings.pricing.ordered_sources
        book = self._prices.in_force(start, end, sources=order)
        pricing = pricing_of(settings, book.prices, book.shapes)
        if "cur" not in order:
            return dict.fromkeys(hours, pricing)
        bills, months = self._bills.bills(start, end), self._bills.months()
        # A closed bill without an hour will never have it.
        missing_bills = {True: Bill(is_final=True), False: None}
        return {
            hour: replace(
                pricing, bill=bills.get(hour) or missing_bills[months.get(floor_day(hour).replace(day=1), False)]
            )
            for hour in hours
        }


def pricing_of(
    settings: CoreSettings, fetched: Iterable[Price] = (), shapes: Mapping[str, InstanceShape] | None = None
) -> Pricing:
    """Collect all prices except the bill.

    Args:
        settings: the settings in force, whose prices are added.
        fetched: prices of the price book: set by hand, or fetched from AWS.
        shapes: shapes of the price book, which take precedence over the built-in ones.
    """
    section = settings.pricing
    clusters = tuple(cluster.name for cluster in settings.clusters)
    blocks = tuple(
        CapacityBlock(
            reservation_id=block.reservation_id,
            cluster=section.cluster_of_unused_block(block, clusters),
            instance_type=block.instance_type,
            instances=block.instances,
            fee=block.fee_usd,
            currency=section.currency,
            valid_from=block.since,
            valid_to=block.until,
        )
        for block in section.capacity_blocks
    )
    prices = [*(block.price() for block in blocks), *(_price_of_rate(rate, section.currency) for rate in section.rates)]
    if section.gpu_hourly_usd is not None:
        prices.append(Price("constant", "gpu-hour", section.gpu_hourly_usd, currency=section.currency))
    if "list-price" in section.ordered_sources:
        prices += list_prices()
    return Pricing(
        book=PriceBook([*fetched, *prices], [_discount(discount) for discount in section.discounts]),
        sources=section.ordered_sources,
        split_policy=split_policy_of(section),
        instance_shapes={**BUILT_IN_SHAPES, **(shapes or {})},
        currency=section.currency,
        capacity_blocks=blocks,
        awaits_spot_prices=section.is_automatic,
    )


def split_policy_of(section: PricingSettings) -> SplitPolicy:
    """Return the split policy that the settings select."""
    if isinstance(section.split, CustomSplit):
        return custom_policy(section.split.gpu, section.split.vcpu, section.split.gib)
    return SPLIT_POLICIES[section.split]


def _price_of_rate(rate: RateSettings, currency: str) -> Price:
    unit: PriceUnit = "of-on-demand"
    amount = (rate.percent_of_on_demand or Decimal(0)) / 100
    if rate.gpu_hourly_usd is not None:
        unit, amount = "gpu-hour", rate.gpu_hourly_usd
    elif rate.node_hourly_usd is not None:
        unit, amount = "node-hour", rate.node_hourly_usd
    return Price("rates", unit, amount, rate.attribute_patterns(), currency, rate.since, rate.until)


def _discount(discount: DiscountSettings) -> Discount:
    return Discount(
        factor=1 - discount.percent / 100,
        sources=frozenset((*discount.sources, *(LIST_PRICE_SOURCES if "on-demand" in discount.sources else ()))),
        applies_to=discount.attribute_patterns(),
        valid_from=discount.since,
        valid_to=discount.until,
    )


BUILT_IN_SHAPES: dict[str, InstanceShape] = {
    name: InstanceShape(
        name,
        devices_of_instance(name),
        CATALOG[name.removeprefix(SAGEMAKER_PREFIX)].vcpus,
        CATALOG[name.removeprefix(SAGEMAKER_PREFIX)].memory_mib,
    )
    for name in (*GPUS_OF_INSTANCE, *NEURON_OF_INSTANCE)
}
