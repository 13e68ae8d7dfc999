"""Section `pricing`: which sources of prices, in which order, and which part of a node's price its GPUs bear."""

from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from gpucost.core.pricing.prices import PRICE_SOURCES, PriceSource
from gpucost.settings.bill import CurSettings
from gpucost.settings.section import UtcTime, Name, Percent, Positive, Section, matching_pattern

Currency = Annotated[str, matching_pattern(r"[A-Z]{3}", "a currency's three capital letters, as USD")]


class Matchers(Section):
    """The nodes that an entry is for: all of what is given must match, as shell patterns; nothing given: all nodes."""

    cluster: Name | None = None
    node_pool: Name | None = None
    instance_type: Name | None = None
    gpu_model: Name | None = None
    capacity_type: Name | None = None
    region: Name | None = None
    zone: Name | None = None
    since: Annotated[UtcTime | None, Field(alias="from", default=None)]
    """The UTC instant or day from which on it is in force."""
    until: UtcTime | None = None

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> "Matchers":
        if self.since and self.until and self.until <= self.since:
            raise ValueError("until must be after from")
        return self

    def applies_to(self) -> dict[str, str]:
        """The facts of nodes that must match."""
        names = ("cluster", "node_pool", "instance_type", "gpu_model", "capacity_type", "region", "zone")
        found = {name: value for name in names if (value := getattr(self, name)) is not None}
        if "capacity_type" in found:  # as nodes' labels are read: SPOT, on_demand and CAPACITY_BLOCK in one spelling
            found["capacity_type"] = found["capacity_type"].lower().replace("_", "-")
        return found


class RateSettings(Matchers):
    """A price given here."""

    gpu_hourly_usd: Positive | None = None
    node_hourly_usd: Positive | None = None
    percent_of_on_demand: Annotated[Decimal, Field(gt=0, le=100)] | None = None
    """Of the node's on-demand price in the book: reserved capacity at 65, say."""

    @model_validator(mode="after")
    def _has_one_price(self) -> "RateSettings":
        if (
            sum(price is not None for price in (self.gpu_hourly_usd, self.node_hourly_usd, self.percent_of_on_demand))
            != 1
        ):
            raise ValueError("exactly one of gpu_hourly_usd, node_hourly_usd, percent_of_on_demand is needed")
        return self


class DiscountSettings(Matchers):
    """A private discount on prices that do not contain it; the bill (cur) does."""

    percent: Percent
    sources: tuple[Literal["spot", "on-demand"], ...] = ("on-demand",)


class CapacityBlockSettings(Section):
    """A Capacity Block for ML, prepaid."""

    reservation_id: Annotated[str, matching_pattern(r"cr-[0-9a-f]+", "a capacity reservation's id, as cr-0123456789abcdef0")]
    instance_type: Name
    instances: Annotated[int, Field(ge=1, le=1000)]
    fee_usd: Positive
    """Paid up front for the whole block."""
    since: Annotated[UtcTime, Field(alias="from")]
    until: UtcTime
    cluster: Name | None = None
    """Which cluster pays for instance-hours that nobody used; needed where there are several."""

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> "CapacityBlockSettings":
        if self.until <= self.since:
            raise ValueError("until must be after from")
        return self


class CustomSplit(Section):
    """Weights of one GPU, one vCPU and one GiB of memory."""

    gpu: Positive
    vcpu: Annotated[Decimal, Field(ge=0, le=Decimal(10) ** 9)]
    gib: Annotated[Decimal, Field(ge=0, le=Decimal(10) ** 9)]


def _kind_of_split(value: object) -> str:
    return "own" if isinstance(value, dict | CustomSplit) else "named"


Split = Annotated[
    Annotated[Literal["gpu-bears-all", "scad", "opencost", "datadog"], Tag("named")] | Annotated[CustomSplit, Tag("own")],
    Discriminator(_kind_of_split),
]


class OnDemandSettings(Section):
    """Which of AWS Price List's offers is meant."""

    tenancy: Literal["Shared", "Dedicated", "Host"] = "Shared"


class PricingSettings(Section):
    """Where prices come from."""

    source: PriceSource | None = None
    """In place of `sources`, where there is one."""
    sources: tuple[PriceSource, ...] = ()
    """Best first; the first that knows a node's hour is taken. Prices set by hand (`override`) come before all
    others unless they are named at another place."""
    currency: Currency = "USD"
    """Of the bill and of all amounts given here; amounts in another one are never added."""
    gpu_hourly_usd: Positive | None = None
    """Source `constant`: per hour of one physical GPU."""
    rates: tuple[RateSettings, ...] = ()
    discounts: tuple[DiscountSettings, ...] = ()
    capacity_blocks: tuple[CapacityBlockSettings, ...] = ()
    on_demand: OnDemandSettings = OnDemandSettings()
    operating_systems: Annotated[tuple[Literal["linux", "windows"], ...], Field(min_length=1)] = ("linux",)
    """Of the nodes: for which spot and on-demand prices are fetched."""
    cur: CurSettings | None = None
    split: Split = "gpu-bears-all"

    @field_validator("sources")
    @classmethod
    def _sources_are_unique(cls, sources: tuple[PriceSource, ...]) -> tuple[PriceSource, ...]:
        if len(set(sources)) < len(sources):
            raise ValueError("names a source twice")
        return sources

    @model_validator(mode="after")
    def _sources_have_what_they_need(self) -> "PricingSettings":
        if bool(self.source) == bool(self.sources):
            raise ValueError(f"one of source and sources is needed, not both; sources are {', '.join(PRICE_SOURCES)}")
        for source, name, is_given in (
            ("constant", "gpu_hourly_usd", self.gpu_hourly_usd is not None),
            ("rates", "rates", bool(self.rates)),
            ("capacity-block", "capacity_blocks", bool(self.capacity_blocks)),
            ("cur", "cur", self.cur is not None),
        ):
            if source in self.ordered_sources and not is_given:
                raise ValueError(f"{name} is needed with source {source}")
            if is_given and source not in self.ordered_sources:
                raise ValueError(f"{name} goes with source {source}, which sources does not name")
        return self

    @model_validator(mode="after")
    def _blocks_stand_once(self) -> "PricingSettings":
        blocks = sorted(self.capacity_blocks, key=lambda block: (block.reservation_id, block.since))
        for before, after in pairwise(blocks):
            if before.reservation_id == after.reservation_id and after.since < before.until:
                raise ValueError(f"capacity_blocks: {after.reservation_id} stands twice for the same time")
        return self

    @property
    def ordered_sources(self) -> tuple[PriceSource, ...]:
        """The sources to ask, best first."""
        named = self.sources or ((self.source,) if self.source else ())
        return named if "override" in named else ("override", *named)

    def cluster_of(self, block: CapacityBlockSettings, clusters: tuple[str, ...]) -> str:
        """Which cluster a block belongs to.

        Raises:
            ValueError: it names none, and there are several; or one that is not there.
        """
        name = block.cluster or (clusters[0] if len(clusters) == 1 else "")
        if name not in clusters:
            raise ValueError(
                f"pricing.capacity_blocks: block {block.reservation_id} needs one of the clusters {', '.join(clusters)}"
            )
        return name
