"""Section `pricing`: the bill, price sources in order of preference, and the part of a price that GPUs bear."""

from collections.abc import Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from gpucost.core.hours import format_timestamp
from gpucost.core.pricing.bill import Blend, ChargeKind
from gpucost.core.pricing.prices import PRICE_SOURCES, PriceSource
from gpucost.settings.section import (
    BOUNDED_DIGITS,
    ExternalId,
    Name,
    Percent,
    Positive,
    QueryRole,
    Region,
    Section,
    UtcTime,
    matching_pattern,
)

# Section `pricing.cur`: where the AWS bill is, and how its amounts are allocated.

OutputLocation = Annotated[
    str, matching_pattern(r"s3://[a-z0-9.-]{3,63}(/\S*)?", "an address like s3://bucket/prefix/")
]
GlueName = Annotated[
    str, matching_pattern(r"[a-z0-9_]{1,255}", "a name in the Glue catalog: up to 255 lower-case letters, digits and _")
]
"""The name of a database or table in the AWS Glue catalog."""
CHARGE_KINDS: tuple[ChargeKind, ...] = ("savings-plan", "reservation", "capacity-reservation")


class CurSettings(Section):
    """A Data Export in S3, hourly and with resource ids, read with Athena."""

    format: Literal["cur2", "focus-1.0", "focus-1.2"] = "cur2"
    """The format of the Data Export: AWS's Cost and Usage Report 2.0 or FOCUS."""
    database: GlueName
    """The export's database in the AWS Glue catalog."""
    table: GlueName
    """The export's table in the AWS Glue catalog."""
    workgroup: Annotated[str, matching_pattern(r"[A-Za-z0-9._-]{1,128}", "up to 128 letters, digits, ., _ and -")] = (
        "primary"
    )
    """The Athena workgroup that runs the queries."""
    output_location: OutputLocation | None = None
    """Where Athena writes its results. By default where the workgroup says."""
    region: Region | None = None
    """The workgroup's region. By default that of the deployment."""
    role_arn: QueryRole | None = None
    """The role to assume if the bill is in another account."""
    external_id: ExternalId | None = None
    """The external id that the role's trust policy requires."""
    amount: Literal["net_amortized", "amortized"] | None = None
    """For CUR 2.0 only; default net_amortized. An export has `net_` columns only if the account has private
    discounts. FOCUS has one amount, EffectiveCost, which is net."""
    blend: Blend = "instance_type"
    """Which instances pay the same hourly rate, although AWS applies Savings Plans to arbitrary ones.

    `instance_type`: the mean of all instances of a type; `node_pool`: the mean of a type in a node pool; `none`: each
    instance's own line on the bill."""
    unused_commitments: tuple[ChargeKind, ...] = CHARGE_KINDS
    """The kinds of unused commitments that are charged to a cluster. Other kinds are left out."""
    unused_commitments_to: Name | None = None
    """The cluster to which they are charged; required if there are several clusters."""
    refresh_days: Annotated[int, Field(ge=1, le=400)] = 45
    """Months within this many days are read again until their bill is closed."""

    @model_validator(mode="after")
    def _fits_the_format(self) -> "CurSettings":
        if self.external_id and not self.role_arn:
            raise ValueError("external_id is only allowed with role_arn")
        if self.amount and self.format != "cur2":
            raise ValueError("amount is only allowed with format: cur2; FOCUS has one amount, EffectiveCost")
        if self.unused_commitments_to and not self.unused_commitments:
            raise ValueError("unused_commitments_to requires unused_commitments, which is empty")
        if repeated := [kind for kind in self.unused_commitments if self.unused_commitments.count(kind) > 1]:
            raise ValueError(f"unused_commitments contains {repeated[0]} twice; name each kind once")
        return self

    def cluster_of_unused_commitments(self, clusters: tuple[str, ...]) -> str:
        """The cluster to which unused commitments are charged; "" if they are left out.

        Raises:
            ValueError: the settings name an unknown cluster, or none although there are several.
        """
        if not self.unused_commitments:
            return ""
        name = self.unused_commitments_to or (clusters[0] if len(clusters) == 1 else "")
        if name not in clusters:
            raise ValueError(
                f"pricing.cur: unused_commitments_to needs one of the clusters {', '.join(clusters)} "
                "(or `unused_commitments: []`)"
            )
        return name


# Price sources, and the split of a node's price.

Currency = Annotated[str, matching_pattern(r"[A-Z]{3}", "a currency's three capital letters, such as USD")]


class NodeMatchers(Section):
    """The nodes to which an entry applies: all given shell patterns must match. Without patterns, all nodes."""

    cluster: Name | None = None
    """Shell pattern of the cluster's name."""
    node_pool: Name | None = None
    """Shell pattern of the node pool's name."""
    instance_type: Name | None = None
    """Shell pattern of the EC2 instance type."""
    gpu_model: Name | None = None
    """Shell pattern of the GPU model."""
    capacity_type: Name | None = None
    """Shell pattern of the capacity type: `on-demand`, `spot`, `reserved` or `capacity-block`."""
    region: Name | None = None
    """Shell pattern of the AWS region."""
    zone: Name | None = None
    """Shell pattern of the availability zone."""
    since: Annotated[UtcTime | None, Field(alias="from", default=None)]
    """The UTC time or day from which the entry applies."""
    until: UtcTime | None = None
    """The UTC time or day at which the entry ends."""

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> "NodeMatchers":
        if self.since and self.until and self.until <= self.since:
            raise ValueError(
                f"until must be after from ({format_timestamp(self.since)}), but is {format_timestamp(self.until)}"
            )
        return self

    def attribute_patterns(self) -> dict[str, str]:
        """The node attributes that must match, by name."""
        names = ("cluster", "node_pool", "instance_type", "gpu_model", "capacity_type", "region", "zone")
        patterns = {name: pattern for name in names if (pattern := getattr(self, name)) is not None}
        if "capacity_type" in patterns:  # one spelling for SPOT, on_demand and CAPACITY_BLOCK, as for nodes' labels
            patterns["capacity_type"] = patterns["capacity_type"].lower().replace("_", "-")
        return patterns


class RateSettings(NodeMatchers):
    """A price in the settings, for some nodes."""

    gpu_hourly_usd: Positive | None = None
    """Price of one physical GPU for one hour."""
    node_hourly_usd: Positive | None = None
    """Price of one node for one hour."""
    percent_of_on_demand: Annotated[Decimal, Field(gt=0, le=100), BOUNDED_DIGITS] | None = None
    """Percentage of the node's on-demand price in the price book, for example 65 for reserved capacity."""

    @model_validator(mode="after")
    def _has_exactly_a_single_price(self) -> "RateSettings":
        if (
            sum(price is not None for price in (self.gpu_hourly_usd, self.node_hourly_usd, self.percent_of_on_demand))
            != 1
        ):
            raise ValueError("exactly one of gpu_hourly_usd, node_hourly_usd, percent_of_on_demand is required")
        return self


class DiscountSettings(NodeMatchers):
    """A private discount on prices that do not include it. The bill (cur) includes it."""

    percent: Percent
    """The discount in percent of the price."""
    sources: tuple[Literal["spot", "on-demand"], ...] = ("on-demand",)
    """The price sources to which the discount applies."""


class CapacityBlockSettings(Section):
    """A prepaid Capacity Block for ML."""

    reservation_id: Annotated[
        str, matching_pattern(r"cr-[0-9a-f]+", "a capacity reservation's id, such as cr-0123456789abcdef0")
    ]
    """The capacity reservation's id."""
    instance_type: Name
    """The EC2 instance type of the block."""
    instances: Annotated[int, Field(ge=1, le=1000)]
    """The number of instances in the block."""
    fee_usd: Positive
    """The upfront price of the whole block."""
    since: Annotated[UtcTime, Field(alias="from")]
    """The UTC time or day at which the block begins."""
    until: UtcTime
    """The UTC time or day at which the block ends."""
    cluster: Name | None = None
    """The cluster to which unused instance-hours are charged; required if there are several clusters."""

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> "CapacityBlockSettings":
        if self.until <= self.since:
            raise ValueError(
                f"until must be after from ({format_timestamp(self.since)}), but is {format_timestamp(self.until)}"
            )
        return self


class CustomSplit(Section):
    """Weights of one GPU, one vCPU and one GiB of memory."""

    gpu: Positive
    """Weight of one physical GPU."""
    vcpu: Annotated[Decimal, Field(ge=0, le=Decimal(10) ** 9), BOUNDED_DIGITS]
    """Weight of one vCPU."""
    gib: Annotated[Decimal, Field(ge=0, le=Decimal(10) ** 9), BOUNDED_DIGITS]
    """Weight of one GiB of memory."""


def _kind_of_split(value: object) -> str:
    return "custom" if isinstance(value, dict | CustomSplit) else "policy"


Split = Annotated[
    Annotated[Literal["gpu-bears-all", "scad", "opencost", "datadog"], Tag("policy")]
    | Annotated[CustomSplit, Tag("custom")],
    Discriminator(_kind_of_split),
]


class OnDemandSettings(Section):
    """Selects the on-demand prices in the AWS Price List that apply to the clusters' nodes."""

    tenancy: Literal["Shared", "Dedicated", "Host"] = "Shared"
    """The tenancy of the EC2 instances, as the Price List spells it."""


class PricingSettings(Section):
    """Where prices come from."""

    misplaced_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("override", "overrides"),
        "Prices set by hand are rates (pricing.rates), or, for some time, those of gpucost prices set",
    )
    source: Literal[PriceSource, "auto"] | None = None
    """A single source, instead of `sources`. `auto`, the default without `sources`: the best source that has a price
    for a node. In order: Capacity Blocks, the bill, `rates`, spot prices, AWS's on-demand prices, and the built-in list
    prices. The first three only where the settings have them."""
    sources: tuple[PriceSource, ...] = ()
    """In order of preference: the first source with a price for a node's hour is used. Prices set by hand (`override`)
    come first unless the list contains them."""
    currency: Currency = "USD"
    """Currency of the bill and of all amounts in the settings. Amounts in different currencies are never added."""
    gpu_hourly_usd: Positive | None = None
    """For source `constant`: price of one physical GPU for one hour."""
    rates: tuple[RateSettings, ...] = ()
    """For source `rates`: prices of GPUs or nodes, or percentages of on-demand prices, for the nodes they match."""
    discounts: tuple[DiscountSettings, ...] = ()
    """Private discounts on spot and on-demand prices."""
    capacity_blocks: tuple[CapacityBlockSettings, ...] = ()
    """For source `capacity-block`: the prepaid blocks."""
    on_demand: OnDemandSettings = OnDemandSettings.model_construct()
    """For source `on-demand`: which list prices apply."""
    operating_systems: Annotated[tuple[Literal["linux", "windows"], ...], Field(min_length=1)] = ("linux",)
    """The nodes' operating systems, for which spot and on-demand prices are fetched."""
    cur: CurSettings | None = None
    """For source `cur`: where the AWS bill is."""
    split: Split = "gpu-bears-all"
    """The part of a node's price that its GPUs bear: a named policy, or weights per GPU, vCPU and GiB."""

    @field_validator("sources")
    @classmethod
    def _sources_are_unique(cls, sources: tuple[PriceSource, ...]) -> tuple[PriceSource, ...]:
        if repeated := [source for source in sources if sources.count(source) > 1]:
            raise ValueError(f"contains {repeated[0]} twice; name each source once")
        return sources

    @model_validator(mode="after")
    def _sources_are_complete(self) -> "PricingSettings":
        if self.source and self.sources:
            raise ValueError(
                "source and sources exclude each other. Pass one of them, or neither for source auto; "
                f"sources are {', '.join(PRICE_SOURCES)}"
            )
        for source, name, is_set in (
            ("constant", "gpu_hourly_usd", self.gpu_hourly_usd is not None),
            ("rates", "rates", bool(self.rates)),
            ("capacity-block", "capacity_blocks", bool(self.capacity_blocks)),
            ("cur", "cur", self.cur is not None),
        ):
            if source in self.ordered_sources and not is_set:
                raise ValueError(f"{name} is required with source {source}")
            if is_set and source not in self.ordered_sources:
                raise ValueError(
                    f"{name} requires source {source}, which is not in sources. Add {source}, or leave {name} out"
                )
        return self

    @model_validator(mode="after")
    def _blocks_are_unique(self) -> "PricingSettings":
        blocks = sorted(self.capacity_blocks, key=lambda block: (block.reservation_id, block.since))
        for before, after in pairwise(blocks):
            if before.reservation_id == after.reservation_id and after.since < before.until:
                raise ValueError(f"capacity_blocks: {after.reservation_id} appears twice for the same time")
        return self

    @property
    def is_automatic(self) -> bool:
        """Whether the settings leave the choice of price sources to the product."""
        return not self.sources and self.source in {None, "auto"}

    @property
    def ordered_sources(self) -> tuple[PriceSource, ...]:
        """The price sources, in order of preference."""
        configured = self.sources
        if self.source is not None and self.source != "auto":
            configured = (self.source,)
        elif not self.sources:
            configured = self._automatic_sources()
        return configured if "override" in configured else ("override", *configured)

    def _automatic_sources(self) -> tuple[PriceSource, ...]:
        configured: list[PriceSource] = []
        if self.capacity_blocks:
            configured.append("capacity-block")
        if self.cur is not None:
            configured.append("cur")
        if self.rates:
            configured.append("rates")
        return (*configured, "spot", "on-demand", "list-price")

    def cluster_of_unused_block(self, block: CapacityBlockSettings, clusters: tuple[str, ...]) -> str:
        """The cluster to which a block's unused instance-hours are charged.

        Raises:
            ValueError: the block names an unknown cluster, or none although there are several.
        """
        name = block.cluster or (clusters[0] if len(clusters) == 1 else "")
        if name not in clusters:
            raise ValueError(
                f"pricing.capacity_blocks: cluster of block {block.reservation_id} needs one of the clusters "
                f"{', '.join(clusters)}"
            )
        return name
