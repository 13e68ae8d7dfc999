"""Rating by the bill: amounts are split completely, including time outside Kubernetes and unused commitments."""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.amounts import CapacityCosts, quantize, to_decimal
from gpucost.core.hour_record import ClusterCharge, Coverage, HourRecord
from gpucost.core.hours import HOUR_MS
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import Observation
from gpucost.core.metering.usage import NodeUsage, Usage
from gpucost.core.pricing.bill import Bill, BilledHour
from gpucost.core.pricing.node_costs import CapacityBlock, NodeCost, Pricing, Unpriced, unused_block_charges
from gpucost.core.pricing.prices import (
    SPLIT_POLICIES,
    InstanceShape,
    Price,
    PriceBook,
    PriceSource,
    SplitPolicy,
    custom_policy,
)
from gpucost.core.pricing.rating import rate_usage
from tests.core.generated_observations import START, cluster_observations, metering_rules
from tests.records import amount

POLICIES = [*SPLIT_POLICIES.values(), custom_policy(Decimal(40), Decimal("0.5"), Decimal("0.25"))]
P4D = InstanceShape("p4d.24xlarge", 8, 96, 1152 * 1024)
SHAPES = {"p4d.24xlarge": P4D, "p6e-gb200.36xlarge": P4D, "": InstanceShape("", 2, 7, 60 * 1024)}
AMOUNTS = st.decimals("0", 500, places=12).map(amount)
BILLED = st.builds(
    BilledHour,
    amount=AMOUNTS,
    currency=st.just("USD"),
    billed_ms=st.integers(0, HOUR_MS),
    is_final=st.booleans(),
    unblended_amount=st.none() | AMOUNTS,
)
MINUTE = 60_000
HOUR_START = int(START.timestamp()) * 1000


def priced(bill: Bill, policy: str = "gpu-bears-all", sources: tuple[PriceSource, ...] = ("cur",)) -> Pricing:
    """Pricing with a bill and an on-demand price of 9 per node-hour."""
    on_demand = Price("on-demand", "node-hour", Decimal(9))
    return Pricing(PriceBook([on_demand]), sources, SPLIT_POLICIES[policy], SHAPES, bill=bill)


def p4d(name: str, *, first: int = 0, last: int = 60) -> NodeUsage:
    """An idle node that exists from one minute to another."""
    present = IntervalMs(HOUR_START + first * MINUTE, HOUR_START + last * MINUTE)
    all_gpu_ms = Fraction(8 * present.length)
    zero = Fraction(0)
    node = GpuNode(name, f"aws:///eu-central-1a/i-{name}", "p4d.24xlarge", physical_gpus=8)
    return NodeUsage(node, present, all_gpu_ms, all_gpu_ms, zero, zero, zero, zero, zero)


def rated(nodes: list[NodeUsage], pricing: Pricing) -> HourRecord:
    """Rate an hour of idle nodes."""
    return rate_usage(Usage("demo", START, Coverage(Decimal(1), Decimal(1)), (), tuple(nodes), ()), pricing)


def capacity_of(rated_hour: HourRecord) -> CapacityCosts:
    """The hour's capacity, which is available."""
    assert rated_hour.totals is not None
    assert rated_hour.totals.capacity is not None
    return rated_hour.totals.capacity


def billed(usd: str, *, minutes: int = 60, is_final: bool = True) -> BilledHour:
    """One instance in one hour of the bill."""
    return BilledHour(amount(usd), "USD", minutes * MINUTE, is_final)


def amounts(*numbers: str | int) -> list[int]:
    """Expected amounts."""
    return [amount(number) for number in numbers]


@settings(max_examples=200, deadline=None)
@given(
    cluster_observations(), metering_rules, st.sampled_from(POLICIES), st.lists(BILLED, min_size=6, max_size=6), AMOUNTS
)
def test_parts_of_nodes_and_charges_sum_to_bill(
    observation: Observation, metering: MeteringRules, policy: SplitPolicy, lines: list[BilledHour], unused: int
) -> None:
    nodes = [
        replace(node, provider_id=f"aws:///eu-central-1a/i-{number}") for number, node in enumerate(observation.nodes)
    ]
    usage = meter(replace(observation, nodes=tuple(nodes)), metering)
    bill = Bill(
        {f"i-{number}": line for number, line in enumerate(lines)},
        {usage.cluster: [ClusterCharge("unused-savings-plan", "arn:sp", unused)]},
    )
    pricing = Pricing(PriceBook(()), ("cur",), policy, SHAPES, bill=bill)
    rated_hour = rate_usage(usage, pricing)
    for node in usage.nodes or ():
        price = pricing.node_cost(node.node, usage.cluster, node.present, node.gpus)
        assert isinstance(price, NodeCost)
        billed_hour = lines[int(node.provider_id.rpartition("-")[2])]
        assert price.gpus_cost + price.host_cost == Fraction(billed_hour.amount, 10**12), (
            "GPU part + host part = the bill's amount"
        )
        assert min(price.gpus_cost, price.host_cost) >= 0
        assert (price.is_final, price.billed_ms, price.unblended_amount) == (
            billed_hour.is_final,
            billed_hour.billed_ms,
            billed_hour.unblended_amount,
        )
    for node_usage, hour in zip(usage.nodes or (), rated_hour.nodes, strict=True):
        billed_hour = lines[int(hour.provider_id.rpartition("-")[2])]
        part = hour.capacity
        assert part.node_cost_usd == billed_hour.amount
        rest = part.unallocated_usd + part.stranded_usd + part.unobserved_usd + part.host_usd + part.residual_usd
        assert hour.allocated_usd + rest == billed_hour.amount
        outside = node_usage.gpus * max(0, billed_hour.billed_ms - node_usage.present.length)
        stranded = (node_usage.stranded_gpu_ms + outside) / HOUR_MS
        assert abs(part.stranded_gpu_hours - stranded * 10**12) <= 1
    if usage.nodes is not None:
        capacity = capacity_of(rated_hour)
        assert capacity.node_cost_usd == sum(hour.capacity.node_cost_usd for hour in rated_hour.nodes) + unused
        assert capacity.unallocated_usd == sum(hour.capacity.unallocated_usd for hour in rated_hour.nodes) + unused


def test_billed_time_outside_kubernetes_is_stranded() -> None:
    """Billed for an hour and 45 minutes in Kubernetes: a quarter of 32 USD and of 8 GPU-hours is stranded."""
    (node,) = rated([p4d("a", last=45)], priced(Bill({"i-a": billed("32")}))).nodes
    part = node.capacity
    assert [part.node_cost_usd, part.stranded_usd, part.unallocated_usd] == amounts(32, 8, 24)
    assert [part.capacity_gpu_hours, part.stranded_gpu_hours, part.unallocated_gpu_hours] == amounts(8, 2, 6)


def test_node_observed_longer_than_billed_costs_billed_amount() -> None:
    (node,) = rated([p4d("a")], priced(Bill({"i-a": billed("16", minutes=30)}))).nodes
    assert [node.capacity.node_cost_usd, node.capacity.stranded_usd] == amounts(16, 0)


def test_unused_reserved_capacity_is_unallocated() -> None:
    """Two unused reserved instances of 8 GPUs cost 110.08; the 19.5 of a Savings Plan add no capacity."""
    charges = [
        ClusterCharge("unused-capacity-reservation", "arn:cr", amount("110.08"), gpu_hours=amount(16)),
        ClusterCharge("unused-savings-plan", "arn:sp", amount("19.5")),
        ClusterCharge("unused-savings-plan", "arn:sp-eu", amount(5), "EUR"),
    ]
    capacity = capacity_of(rated([p4d("a")], priced(Bill({"i-a": billed("32")}, {"demo": charges}))))
    assert [capacity.node_cost_usd, capacity.unallocated_usd] == amounts("161.58", "161.58")
    assert to_decimal(capacity.capacity_gpu_hours) == 24
    other_capacity = capacity_of(rated([p4d("a")], priced(Bill({"i-a": billed("32")}, {"another": charges}))))
    assert to_decimal(other_capacity.node_cost_usd) == 32


def test_nodes_with_closed_open_and_missing_bill() -> None:
    """A final line, an open line, an interrupted instance and a node that is not in the bill, with Datadog's 95%."""
    bill = Bill({"i-a": billed("32"), "i-b": billed("20", is_final=False), "i-c": billed("0", minutes=20)})
    nodes = [p4d("a"), p4d("b"), p4d("c", first=40), p4d("d")]
    rated_hour = rated(nodes, priced(bill, "datadog", ("cur", "on-demand")))
    assert [node.price_source for node in rated_hour.nodes] == ["cur", "cur", "cur", "on-demand"]
    assert [node.capacity.node_cost_usd for node in rated_hour.nodes] == amounts(32, 20, 0, 9)
    assert [node.capacity.host_usd for node in rated_hour.nodes] == amounts("1.6", 1, 0, "0.45")
    assert rated_hour.status == "provisional"


def test_node_missing_from_closed_bill_is_final() -> None:
    """Instances of Capacity Blocks are not in the bill, so their hours would otherwise stay provisional forever."""
    sources: tuple[PriceSource, ...] = ("cur", "on-demand")
    for is_closed in (False, True):
        bill = Bill({"i-a": billed("32")}, is_final=is_closed)
        rated_hour = rated([p4d("a"), p4d("b")], priced(bill, sources=sources))
        assert rated_hour.status == ("complete" if is_closed else "provisional")


def test_time_of_a_node_outside_its_block_is_no_use_of_the_block() -> None:
    """Two p5 for the hour's first half, at 60 an hour; a node of 40 minutes used 30 of their 60 instance-minutes."""
    block_end = START + timedelta(minutes=30)
    block = CapacityBlock("cr-1", "demo", "p5.48xlarge", 2, Decimal(60), "USD", START, block_end)
    hour, present = IntervalMs(HOUR_START, HOUR_START + HOUR_MS), IntervalMs(HOUR_START, HOUR_START + 40 * MINUTE)
    (charge,) = unused_block_charges([block], "demo", hour, [("cr-1", present)])
    assert [charge.amount, charge.gpu_hours] == amounts(30, 4)


def test_bill_in_another_currency_is_ignored() -> None:
    bill = Bill({"i-a": replace(billed("30"), currency="EUR")})
    (price,) = [priced(bill).node_cost(p4d("a").node, "demo", IntervalMs(0, HOUR_MS), Fraction(8))]
    assert isinstance(price, Unpriced)
    assert "cur has a price in EUR, but the hour is in USD" in price.reason
    in_euro = replace(priced(bill), currency="EUR").node_cost(
        p4d("a").node, "demo", IntervalMs(0, HOUR_MS), Fraction(8)
    )
    assert isinstance(in_euro, NodeCost)
    assert quantize(in_euro.cost) == 30
