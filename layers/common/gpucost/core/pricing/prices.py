"""The price book: prices by source, the nodes to which they apply, their validity, and their split.

A price applies to nodes with certain facts (`{"instance_type": "p5.48xlarge", "region": "us-east-1"}`; a value may be
a shell pattern). Of one source, the price with the most facts wins at any time, then the one that began last, then the
one that was fetched last. The first source in the order of the settings that has prices for all of a node's time wins.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import msgspec
from msgspec import Struct, field

from gpucost.core.decimals import parse_decimal
from gpucost.core.hours import to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.instance_types import instance_id_of
from gpucost.core.metering.kubernetes_labels import OPERATING_SYSTEM_LABEL, REGION_LABEL, RESERVATION_ID_LABEL

if TYPE_CHECKING:
    from gpucost.core.metering.gpu_shares import GpuNode

PriceSource = Literal["override", "capacity-block", "cur", "spot", "on-demand", "list-price", "rates", "constant"]
"""`override`: set by hand; `capacity-block`: the fee of a prepaid block; `cur`: the bill's amount; `spot`: EC2's spot
price history; `on-demand`: AWS Price List; `list-price`: the product's own table of on-demand prices; `rates` and
`constant`: from the settings."""
LIST_PRICE_SOURCES: tuple[PriceSource, ...] = ("on-demand", "list-price")
"""Sources of AWS's public on-demand prices, the current ones first."""
OperatingSystem = Literal["linux", "windows"]
SPOT_VALID_FOR = timedelta(days=2)
"""How long the newest spot price is valid, from the start of the day on which it was fetched. Its validity changes only
once a day, and a refresh that fails for a day leaves no hour without a price."""
PRICE_SOURCES: tuple[PriceSource, ...] = get_args(PriceSource)
PriceUnit = Literal["node-hour", "gpu-hour", "of-on-demand"]
"""Money per hour of a node or of one physical GPU, or a factor on the node's on-demand price."""
NODE_ATTRIBUTES = (
    "cluster",
    "node",
    "instance_id",
    "reservation_id",
    "node_pool",
    "instance_type",
    "gpu_model",
    "capacity_type",
    "zone",
    "zone_id",
    "region",
    "operating_system",
)
"""The attributes of nodes to which a price can apply."""
PRICE_LABELS = frozenset(
    {*RESERVATION_ID_LABEL.exported_names, *REGION_LABEL.exported_names, *OPERATING_SYSTEM_LABEL.exported_names}
)
"""The labels that facts need in addition to the fields of `GpuNode`."""
_REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")
_ZONE_ID_DIRECTIONS = {
    "n": "north",
    "s": "south",
    "e": "east",
    "w": "west",
    "c": "central",
    "ne": "northeast",
    "nw": "northwest",
    "se": "southeast",
    "sw": "southwest",
}
_ZONE_ID = re.compile(r"([a-z]{2})(g(?=[nsewc]))?(ne|nw|se|sw|n|s|e|w|c)(\d+)-")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNBOUNDED_MS = 2**62


class Price(Struct, frozen=True):
    """One price, valid for `[valid_from, valid_to)`."""

    source: PriceSource
    unit: PriceUnit
    amount: Decimal | Fraction
    """Per hour of `unit`, unrounded; a factor such as 0.65 for `of-on-demand`."""
    applies_to: Mapping[str, str] = field(default_factory=dict)
    """Attributes of a node (`NODE_ATTRIBUTES`), all of which must match; empty for every node."""
    currency: str = "USD"
    valid_from: datetime | None = None
    """None without a beginning."""
    valid_to: datetime | None = None
    """None without an end."""
    fetched_at: datetime | None = None
    author: str = ""
    reason: str = ""

    @property
    def interval(self) -> IntervalMs:
        """Its validity, in milliseconds since the epoch."""
        return _validity(self.valid_from, self.valid_to)


class Discount(Struct, frozen=True):
    """A factor on the prices of some sources, which applies to the node's whole price."""

    factor: Decimal
    """The factor on the price: 0.88 for 12% off."""
    sources: frozenset[PriceSource]
    applies_to: Mapping[str, str] = msgspec.field(default_factory=dict)
    valid_from: datetime | None = None
    valid_to: datetime | None = None


class QuotedPiece(NamedTuple):
    """A piece of a node's time, with its price."""

    time: IntervalMs
    hourly_price: Fraction
    is_per_gpu: bool
    """Whether the price is that of one GPU; otherwise it is that of the node."""
    currency: str


def attributes_of_node(node: "GpuNode", cluster: str) -> dict[str, str]:
    """Return the attributes of a node to which prices can apply; "" for unknown ones.

    The region is that of the topology label, otherwise that of the zone. The operating system is that of the
    Kubernetes label (`linux`, `windows`), otherwise linux.
    """
    labels = node.labels
    instance_id = instance_id_of(node.provider_id)
    return {
        "cluster": cluster,
        "node": node.name,
        "instance_id": instance_id if instance_id.startswith("i-") else "",
        "reservation_id": RESERVATION_ID_LABEL.value_in(labels),
        "node_pool": node.node_pool,
        "instance_type": node.instance_type,
        "gpu_model": node.gpu_model,
        "capacity_type": node.capacity_type,
        "zone": node.zone,
        "zone_id": node.zone_id,
        "region": REGION_LABEL.value_in(labels) or region_of(node.zone),
        "operating_system": OPERATING_SYSTEM_LABEL.value_in(labels) or "linux",
    }


@lru_cache(maxsize=256)
def region_of(zone: str) -> str:
    """Return the region of an AWS zone or local zone (`us-west-2-lax-1a`); "" for anything else."""
    match = _REGION.match(zone)
    return match[0] if match else ""


def region_of_zone_id(zone_id: str) -> str:
    """Return the region of a zone id (`use1-az4` → `us-east-1`, `usgw1-az1` → `us-gov-west-1`); "" otherwise."""
    match = _ZONE_ID.match(zone_id)
    if not match:
        return ""
    area, gov, direction, number = match.groups()
    return f"{area}{'-gov' if gov else ''}-{_ZONE_ID_DIRECTIONS[direction]}-{number}"


class PriceBook:
    """The prices of all sources, looked up by a node's facts.

    Args:
        prices: in any order.
        discounts: factors on prices; several that apply are multiplied.
    """

    def __init__(self, prices: Iterable[Price], discounts: Sequence[Discount] = ()) -> None:
        # By source, by names of facts and by their values: one lookup per combination instead of a scan of all prices.
        self._exact: dict[str, dict[tuple[str, ...], dict[tuple[str, ...], list[Price]]]] = {}
        self._patterns: dict[str, list[Price]] = {}
        self._discounts = discounts
        self._quotes: dict[tuple[PriceSource, IntervalMs, tuple[str, ...]], list[QuotedPiece] | None] = {}
        needed = {name for discount in discounts for name in discount.applies_to}
        for price in prices:
            names = tuple(sorted(price.applies_to))
            needed.update(names)
            values = tuple(price.applies_to[name] for name in names)
            if any(set(value) & set("*?[") for value in values):
                self._patterns.setdefault(price.source, []).append(price)
            else:
                self._exact.setdefault(price.source, {}).setdefault(names, {}).setdefault(values, []).append(price)
        self._needed_facts = tuple(needed)

    def quote(self, source: PriceSource, facts: Mapping[str, str], time: IntervalMs) -> list[QuotedPiece] | None:
        """Return a source's price for a node's time in pieces; None if it is incomplete or in several currencies."""
        # Nodes that differ only in facts that no price depends on, such as the node's name, have the same quote.
        key = source, time, tuple([facts.get(name, "") for name in self._needed_facts])
        if key not in self._quotes:
            self._quotes[key] = self._new_quote(source, facts, time)
        return self._quotes[key]

    def _new_quote(self, source: PriceSource, facts: Mapping[str, str], time: IntervalMs) -> list[QuotedPiece] | None:
        candidates = self._candidates(source, facts)
        if not candidates:
            return None
        pieces: list[QuotedPiece] = []
        for piece, prices in _in_force(candidates, time):
            parts = next(filter(None, (self._priced_pieces(price, facts, piece) for price in prices)), None)
            if parts is None:
                return None
            for part in parts:
                pieces += [
                    QuotedPiece(cut, part.hourly_price * factor, part.is_per_gpu, part.currency)
                    for cut, factor in self._discounted(source, facts, part.time)
                ]
        return pieces if len({piece.currency for piece in pieces}) == 1 else None

    def _priced_pieces(self, price: Price, facts: Mapping[str, str], time: IntervalMs) -> list[QuotedPiece] | None:
        """Return a price in pieces of time; None for a factor on an on-demand price that is missing."""
        if price.unit != "of-on-demand":
            return [QuotedPiece(time, Fraction(price.amount), price.unit == "gpu-hour", price.currency)]
        listed = next(filter(None, (self.quote(source, facts, time) for source in LIST_PRICE_SOURCES)), None)
        if listed is None:
            return None
        return [piece._replace(hourly_price=piece.hourly_price * Fraction(price.amount)) for piece in listed]

    def _candidates(self, source: PriceSource, facts: Mapping[str, str]) -> list[Price]:
        candidates = [price for price in self._patterns.get(source, ()) if _matches(price.applies_to, facts)]
        for names, by_value in self._exact.get(source, {}).items():
            candidates += by_value.get(tuple(facts.get(name, "") for name in names), ())
        return candidates

    def _discounted(
        self, source: PriceSource, facts: Mapping[str, str], time: IntervalMs
    ) -> list[tuple[IntervalMs, Fraction]]:
        applying = [
            (_validity(discount.valid_from, discount.valid_to), discount)
            for discount in self._discounts
            if source in discount.sources and _matches(discount.applies_to, facts)
        ]
        if not applying:
            return [(time, Fraction(1))]
        discounted = []
        for piece in _cut_at_interval_edges(time, [interval for interval, _ in applying]):
            factor = Fraction(1)
            for interval, discount in applying:
                if interval.contains(piece.start):
                    factor *= Fraction(discount.factor)
            discounted.append((piece, factor))
        return discounted


def _in_force(prices: Sequence[Price], time: IntervalMs) -> list[tuple[IntervalMs, list[Price]]]:
    """Return the valid prices for each piece of a time, best first; the time may be empty (a node with one sample)."""
    intervals = [(price.interval, price) for price in prices]
    pieces = []
    for piece in _cut_at_interval_edges(time, [interval for interval, _ in intervals]):
        valid = [price for interval, price in intervals if interval.contains(piece.start)]
        pieces.append((piece, sorted(valid, key=_precedence, reverse=True)))
    return pieces


def _cut_at_interval_edges(time: IntervalMs, intervals: Sequence[IntervalMs]) -> list[IntervalMs]:
    """Cut a time wherever one of the intervals begins or ends."""
    edges = {edge for interval in intervals for edge in (interval.start, interval.end) if time.start < edge < time.end}
    points = [time.start, *sorted(edges), time.end]
    return [IntervalMs(start, end) for start, end in pairwise(points)]


def _matches(applies_to: Mapping[str, str], facts: Mapping[str, str]) -> bool:
    return all(fnmatchcase(facts.get(name, ""), pattern) for name, pattern in applies_to.items())


def _validity(start: datetime | None, end: datetime | None) -> IntervalMs:
    return IntervalMs(
        -_UNBOUNDED_MS if start is None else to_epoch_ms(start), _UNBOUNDED_MS if end is None else to_epoch_ms(end)
    )


def _precedence(price: Price) -> tuple[int, datetime, datetime, Decimal | Fraction]:
    return (len(price.applies_to), price.valid_from or _EPOCH, price.fetched_at or _EPOCH, price.amount)


# Split policies: which part of a node's price its GPUs bear; the host, its CPU and memory, bears the rest.
#
# A policy weighs one GPU, one vCPU and one GiB of memory against each other:
#
#     GPU part = gpus × w_gpu / (gpus × w_gpu + vcpus × w_vcpu + gib × w_gib)


class InstanceShape(Struct, frozen=True):
    """The hardware of an EC2 instance type (`DescribeInstanceTypes`)."""

    instance_type: str
    gpus: int | Fraction
    """Physical GPUs, or Neuron devices."""
    vcpus: int
    memory_mib: int


class SplitPolicy(Struct, frozen=True):
    """A named rule to split a node's price.

    It has either `weights` per unit, or a `gpu_part` that does not depend on the instance's shape.
    """

    name: str
    weights: tuple[Fraction, Fraction, Fraction] | None = None
    """The weights of one GPU, one vCPU and one GiB."""
    gpu_part: Fraction | None = None

    @property
    def needs_shape(self) -> bool:
        """Whether the policy needs the instance type's shape."""
        return self.gpu_part is None

    def gpu_part_of(self, shape: InstanceShape | None) -> Fraction | None:
        """Return the GPUs' part of the node's price, 0 to 1; None if the policy needs the shape and it is unknown."""
        if self.weights is None:
            return self.gpu_part
        if shape is None:
            return None
        gpu, vcpu, gib = self.weights
        gpus = gpu * shape.gpus
        host = vcpu * shape.vcpus + gib * Fraction(shape.memory_mib, 1024)
        return gpus / (gpus + host) if gpus + host else None


def _weights(gpu: str, vcpu: str, gib: str) -> tuple[Fraction, Fraction, Fraction]:
    return Fraction(parse_decimal(gpu)), Fraction(parse_decimal(vcpu)), Fraction(parse_decimal(gib))


SPLIT_POLICIES: dict[str, SplitPolicy] = {
    policy.name: policy
    for policy in (
        SplitPolicy("gpu-bears-all", gpu_part=Fraction(1)),
        SplitPolicy("scad", weights=_weights("9", "0.9", "0.1")),
        SplitPolicy("opencost", weights=_weights("0.95", "0.031611", "0.004237")),
        SplitPolicy("datadog", gpu_part=Fraction(95, 100)),
    )
}
"""`gpu-bears-all`: tainted GPU nodes exist for their GPUs. `scad`: AWS Split Cost Allocation Data (accelerators to
CPU and memory 9 : 1, CPU to memory 9 : 1). `opencost`: the default prices of its configs/aws.json. `datadog`: 95% GPU,
3% CPU, 2% memory of every node."""


def custom_policy(gpu: Decimal, vcpu: Decimal, gib: Decimal) -> SplitPolicy:
    """Return a policy with custom weights; that of the GPU must be positive, and none negative."""
    return SplitPolicy("own", weights=(Fraction(gpu), Fraction(vcpu), Fraction(gib)))
