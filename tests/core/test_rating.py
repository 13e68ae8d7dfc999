"""Rating: amounts computed by hand, and parts that sum to the node's cost for every policy."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.amounts import CapacityCosts, quantize, to_decimal
from gpucost.core.attribution import AttributionRules, BusinessUnit, build_record
from gpucost.core.hour_record import ClusterCharge, Coverage, HourRecord, NodeHour
from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode, GpuShare
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import Observation, PodObservation
from gpucost.core.metering.usage import NodeUsage, PodUsage, Usage, Use
from gpucost.core.pricing.bill import Bill, BilledHour
from gpucost.core.pricing.node_costs import CapacityBlock, Pricing
from gpucost.core.pricing.prices import (
    SPLIT_POLICIES,
    InstanceShape,
    Price,
    PriceBook,
    PriceSource,
    PriceUnit,
    SplitPolicy,
    custom_policy,
)
from gpucost.core.pricing.rating import rate_usage
from tests.core.generated_observations import cluster_observations, metering_rules
from tests.records import amount

DAY = datetime(2026, 11, 19, tzinfo=UTC)
MINUTE = 60_000
SHAPES = {
    "p5.48xlarge": InstanceShape("p5.48xlarge", 8, 192, 2048 * 1024),
    "p4d.24xlarge": InstanceShape("p4d.24xlarge", 8, 96, 1152 * 1024),
    "g5.xlarge": InstanceShape("g5.xlarge", 1, 4, 16 * 1024),
}


def node(name: str, instance_type: str = "g5.xlarge", **more: str) -> GpuNode:
    return GpuNode(name, f"aws:///us-east-1a/i-{name}", instance_type, physical_gpus=SHAPES[instance_type].gpus, **more)  # type: ignore[arg-type]


def hour_of(
    node: GpuNode, held: Mapping[str, tuple[int, int]], hour: datetime, present: tuple[int, int] = (0, 60)
) -> tuple[list[PodUsage], NodeUsage]:
    """A node's hour with holders (GPUs, minutes), each at a utilization of a quarter."""
    start = to_epoch_ms(hour)
    pods, gpu_ms = [], Fraction(0)
    for name, (units, minutes) in held.items():
        time = IntervalMs(start + present[0] * MINUTE, start + (present[0] + minutes) * MINUTE)
        pod = PodObservation(name, name, name, node.name, (), None)
        held_gpu_ms = Fraction(units * time.length)
        pods.append(
            PodUsage(
                pod,
                node,
                "nvidia_com_gpu",
                units,
                GpuShare(Fraction(1), "capacity"),
                time,
                time,
                time.end,
                use=Use("pod", Fraction(1, 4), time.length, held_gpu_ms / 4),
            )
        )
        gpu_ms += held_gpu_ms
    present_time = IntervalMs(start + present[0] * MINUTE, start + present[1] * MINUTE)
    total = Fraction((node.physical_gpus or 0) * present_time.length)
    zero = Fraction(0)
    return pods, NodeUsage(node, present_time, total, total - gpu_ms, zero, zero, zero, zero, zero)


def usage_of(hour: datetime, *parts: tuple[list[PodUsage], NodeUsage]) -> Usage:
    pods = tuple(pod for pods, _ in parts for pod in pods)
    return Usage("c", hour, Coverage(Decimal(1), None), pods, tuple(node_usage for _, node_usage in parts), ())


def spot(usd: str, hour: int, until: int | None = None) -> Price:
    facts = {"instance_type": "g5.xlarge", "zone_id": "use1-az1", "capacity_type": "spot"}
    end = None if until is None else DAY + timedelta(hours=until)
    return Price("spot", "node-hour", Decimal(usd), facts, valid_from=DAY + timedelta(hours=hour), valid_to=end)


def of_type(source: PriceSource, usd: str, instance_type: str, **more: str) -> Price:
    unit: PriceUnit = "of-on-demand" if source == "rates" else "node-hour"
    return Price(source, unit, Decimal(usd), {"instance_type": instance_type, **more})


ORDER: tuple[PriceSource, ...] = ("cur", "spot", "rates", "on-demand")
PRICES = [
    of_type("on-demand", "55.04", "p5.48xlarge"),
    of_type("on-demand", "21.957642", "p4d.24xlarge"),
    of_type("on-demand", "1.006", "g5.xlarge"),
    of_type("rates", "0.65", "p4d.24xlarge", capacity_type="reserved"),
    spot("0.30", 0, 6),
    spot("0.45", 6, 13),
    replace(spot("0.40", 13), valid_from=DAY + timedelta(hours=13, minutes=30)),
    replace(spot("0.36", 13), valid_to=DAY + timedelta(hours=13, minutes=30)),
]


@pytest.mark.parametrize(
    ("hour", "spot_usd", "spot_source"),
    [
        (2, "0.30", "spot"),
        (6, "0.45", "spot"),
        (13, "0.38", "spot"),  # half an hour at 0.36, half at 0.40
        (20, "0.40", "spot"),
        (-1, "1.006", "on-demand"),  # before the first known price
    ],
)
def test_nodes_with_prices_of_all_sources(hour: int, spot_usd: str, spot_source: str) -> None:
    """On-demand, spot with three changes within the day, reserved and billed nodes."""
    at = DAY + timedelta(hours=hour)
    usage = usage_of(
        at,
        hour_of(node("od", "p5.48xlarge", capacity_type="on-demand"), {"od-all": (4, 60), "od-half": (4, 30)}, at),
        hour_of(node("spot", capacity_type="spot", zone_id="use1-az1"), {"spot-all": (1, 60)}, at),
        hour_of(node("reserved", "p4d.24xlarge", capacity_type="reserved"), {"reserved-two": (2, 60)}, at),
        hour_of(node("billed", "p4d.24xlarge"), {"billed-one": (1, 45)}, at),
    )
    bill = Bill({"i-billed": BilledHour(amount("16.00"), "USD", HOUR_MS, is_final=True)})
    rated = rate_usage(usage, Pricing(PriceBook(PRICES), ORDER, bill=bill))
    lines = {
        line.pod: (str(line.gpu_hourly_usd), str(line.figures()["allocated_usd"]), line.price_source)
        for line in rated.lines
    }
    hourly = str(quantize(Decimal(spot_usd)))
    assert lines == {
        "od-all": ("6.880000000000", "27.520000000000", "on-demand"),  # 55.04 / 8 × 4
        "od-half": ("6.880000000000", "13.760000000000", "on-demand"),
        "spot-all": (hourly, hourly, spot_source),
        "reserved-two": ("1.784058412500", "3.568116825000", "rates"),  # 21.957642 × 0.65 / 8 × 2
        "billed-one": ("2.000000000000", "1.500000000000", "cur"),
    }
    costs = {node_hour.node: node_hour.capacity.node_cost_usd for node_hour in rated.nodes}
    assert {name: to_decimal(usd) for name, usd in costs.items()} == {
        "od": Decimal("55.04"),
        "spot": Decimal(spot_usd),
        "reserved": Decimal("14.2724673"),
        "billed": Decimal(16),
    }
    assert capacity_of(rated).node_cost_usd == sum(costs.values())
    # Prices may change until the bill has all nodes.
    assert rated.status == "provisional"


def test_prices_are_provisional_until_preferred_bill_exists() -> None:
    usage = usage_of(DAY, hour_of(node("a"), {"p": (1, 60)}, DAY))
    rates = PriceBook([of_type("on-demand", "1.006", "g5.xlarge")])
    assert rate_usage(usage, Pricing(rates, ("on-demand",))).status == "complete"
    assert rate_usage(usage, Pricing(rates, ("on-demand", "cur"))).status == "complete"
    assert rate_usage(usage, Pricing(rates, ("cur", "on-demand"))).status == "provisional"
    open_month = Bill({"i-a": BilledHour(amount(1), "USD", HOUR_MS, is_final=False)})
    assert rate_usage(usage, Pricing(rates, ("cur",), bill=open_month)).status == "provisional"


def test_billed_time_outside_kubernetes_is_stranded() -> None:
    usage = usage_of(DAY, hour_of(node("a"), {"p": (1, 30)}, DAY, present=(15, 45)))
    bill = Bill({"i-a": BilledHour(amount(2), "USD", 45 * MINUTE, is_final=True)})
    rated = rate_usage(usage, Pricing(PriceBook([]), ("cur",), bill=bill))
    (line,), (capacity,) = rated.lines, [node_hour.capacity for node_hour in rated.nodes]
    assert line.allocated_usd == amount("1.333333333333")
    assert (capacity.capacity_gpu_hours, capacity.stranded_gpu_hours) == (amount("0.75"), amount("0.25"))
    assert capacity.stranded_usd == amount("0.666666666667")


def test_node_without_price_costs_null_and_does_not_change_others() -> None:
    usage = usage_of(
        DAY, hour_of(node("priced"), {"a": (1, 60)}, DAY), hour_of(node("unpriced", "p5.48xlarge"), {"b": (2, 60)}, DAY)
    )
    record = build_record(usage, AttributionRules(Pricing(PriceBook([of_type("spot", "1", "g5.xlarge")]), ("spot",))))
    priced, unpriced = record.lines
    assert record.status == "provisional"
    assert record.notes == ("no price for node unpriced (p5.48xlarge) from spot",)
    assert (priced.allocated_usd, priced.price_source) == (amount(1), "spot")
    assert (unpriced.allocated_usd, unpriced.waste_usd, unpriced.unmeasured_usd, unpriced.gpu_hourly_usd) == (None,) * 4
    assert (unpriced.allocated_gpu_hours, unpriced.effective_gpu_hours) == (amount(2), amount("0.5"))
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert record.totals.costs.unpriced_gpu_hours == amount(2)
    assert record.totals.costs.allocated_usd == record.totals.capacity.node_cost_usd == amount(1)


def test_missing_shape_is_named() -> None:
    usage = usage_of(DAY, hour_of(node("a"), {"p": (1, 60)}, DAY))
    rated = rate_usage(usage, Pricing(PriceBook(PRICES), ("on-demand",), SPLIT_POLICIES["scad"]))
    assert rated.lines[0].allocated_usd is None
    assert "no shape for node a (g5.xlarge): split policy scad needs" in rated.notes[0]


def test_price_in_other_currency_is_ignored_and_noted() -> None:
    usage = usage_of(DAY, hour_of(node("a"), {"p": (1, 60)}, DAY))
    euros = PriceBook([Price("on-demand", "node-hour", Decimal(1), currency="EUR")])
    rated = rate_usage(usage, Pricing(euros, ("on-demand",)))
    assert rated.notes == (
        "no price for node a (g5.xlarge) from on-demand; on-demand has a price in EUR, but the hour is in USD",
    )
    assert rate_usage(usage, Pricing(euros, ("on-demand",), currency="EUR")).lines[0].allocated_usd == amount(1)


def test_price_per_gpu_has_no_host_part() -> None:
    usage = usage_of(DAY, hour_of(node("a"), {"p": (1, 60)}, DAY))
    rated = rate_usage(usage, replace(Pricing.constant(Decimal(3)), split_policy=SPLIT_POLICIES["scad"]))
    assert (capacity_of(rated).node_cost_usd, capacity_of(rated).host_usd) == (amount(3), 0)
    assert rated.nodes[0].split_policy == "gpu-bears-all"


def test_capacity_block_costs_its_fee_even_if_unused() -> None:
    """Two instances for a day at $2,400: $50 per hour each, with or without a node."""
    block = CapacityBlock("cr-1", "c", "p5.48xlarge", 2, Decimal(2400), "USD", DAY, DAY + timedelta(days=1))
    labels = {"label_karpenter_k8s_aws_capacity_reservation_id": "cr-1"}
    pricing = Pricing(PriceBook([block.price()]), ("capacity-block",), capacity_blocks=(block,))
    total = 0
    for hour in range(24):
        at = DAY + timedelta(hours=hour)
        nodes = [hour_of(node("one", "p5.48xlarge", labels=labels), {"p": (8, 60)}, at)]  # type: ignore[arg-type]
        if hour >= 20:
            nodes.append(hour_of(node("two", "p5.48xlarge", labels=labels), {"q": (8, 30)}, at, (30, 60)))  # type: ignore[arg-type]
        rated = rate_usage(usage_of(at, *nodes), pricing)
        capacity = capacity_of(rated)
        total += capacity.node_cost_usd
        if hour < 20:
            assert rated.charges == (ClusterCharge("unused-capacity-block", "cr-1", amount(50), "USD", amount(8)),)
            assert (capacity.unallocated_usd, capacity.unallocated_gpu_hours) == (amount(50), amount(8))
        else:
            assert capacity.unallocated_usd == amount(25)
        assert rated.lines[0].allocated_usd == amount(50)
    assert total == amount(2400)
    later = DAY + timedelta(days=1)
    after = rate_usage(usage_of(later, hour_of(node("one", "p5.48xlarge", labels=labels), {}, later)), pricing)  # type: ignore[arg-type]
    assert after.charges == ()
    assert after.notes


def block(until: int, labels: dict[str, str]) -> tuple[Pricing, GpuNode]:
    """Pricing with a block of one instance at $10 per hour and $12 for other GPU-hours, and the block's node."""
    ends = DAY + timedelta(minutes=until)
    capacity_block = CapacityBlock("cr-1", "c", "g5.xlarge", 1, Decimal(until) / 6, "USD", DAY, ends)
    book = PriceBook(
        [
            capacity_block.price(),
            Price("constant", "gpu-hour", Decimal(12)),
            Price("override", "node-hour", Decimal(3), {"node": "overridden"}),
        ]
    )
    pricing = Pricing(book, ("override", "capacity-block", "constant"), capacity_blocks=(capacity_block,))
    return pricing, node("a", labels=labels)  # type: ignore[arg-type]


LABELS = {"label_karpenter_k8s_aws_capacity_reservation_id": "cr-1"}


def test_node_observed_slightly_longer_than_block_is_priced_by_block() -> None:
    pricing, of_block = block(30, LABELS)
    rated = rate_usage(usage_of(DAY, hour_of(of_block, {}, DAY, present=(0, 31))), pricing)
    assert (rated.nodes[0].price_source, rated.nodes[0].capacity.node_cost_usd) == ("capacity-block", amount(5))
    assert rated.charges == ()


def test_block_is_charged_unless_override_replaces_it() -> None:
    pricing, of_block = block(60, LABELS)
    usage = usage_of(DAY, hour_of(of_block, {}, DAY))
    elsewhere = rate_usage(usage, replace(pricing, sources=("constant", "capacity-block")))
    assert capacity_of(elsewhere).node_cost_usd == amount(12 + 10)
    by_hand = usage_of(DAY, hour_of(replace(of_block, name="overridden"), {}, DAY))
    assert rate_usage(by_hand, pricing).charges == ()  # the override replaces the block's price


def test_charge_in_other_currency_is_noted_and_not_summed() -> None:
    usage = usage_of(DAY, hour_of(node("a"), {"p": (1, 60)}, DAY))
    bill = Bill(charges={"c": (ClusterCharge("unused-savings-plan", "sp-1", amount(9), "EUR"),)})
    rated = rate_usage(usage, replace(Pricing.constant(Decimal(1)), bill=bill))
    assert rated.charges == ()
    assert rated.notes == ("unused-savings-plan of sp-1 is in EUR and not in any sum: the hour is in USD",)


def test_charge_of_cluster_with_unknown_nodes_is_noted() -> None:
    usage = replace(usage_of(DAY, hour_of(node("a"), {"p": (1, 60)}, DAY)), nodes=None)
    bill = Bill(charges={"c": (ClusterCharge("unused-savings-plan", "sp-1", amount(9)),)})
    rated = rate_usage(usage, replace(Pricing.constant(Decimal(1)), bill=bill))
    assert rated.totals is not None
    assert (rated.lines[0].allocated_usd, rated.totals.capacity) == (amount(1), None)
    assert rated.notes == ("unused-savings-plan of sp-1 is not in any sum: the nodes are unknown",)


def test_price_skipped_for_its_currency_is_noted() -> None:
    usage = usage_of(DAY, hour_of(node("a"), {"p": (1, 60)}, DAY))
    book = PriceBook(
        [Price("override", "node-hour", Decimal(1), currency="EUR"), Price("constant", "gpu-hour", Decimal(12))]
    )
    rated = rate_usage(usage, Pricing(book, ("override", "constant")))
    assert rated.lines[0].allocated_usd == amount(12)
    assert rated.notes == (
        "node a (g5.xlarge) is priced by constant, because override has a price in EUR, but the hour is in USD",
    )


def test_charge_counts_even_if_no_node_has_price() -> None:
    usage = usage_of(DAY, hour_of(node("a"), {"p": (1, 60)}, DAY))
    bill = Bill(charges={"c": (ClusterCharge("unused-savings-plan", "sp-1", amount(30)),)})
    rated = rate_usage(usage, Pricing(PriceBook([]), ("cur",), bill=bill))
    assert capacity_of(rated).figures()["node_cost_usd"] == 30


def test_eight_gpus_for_96_hours_cost_2688_usd() -> None:
    """An article's example (docs/explanation/comparison.md): 8 GPUs at $3.50 for four days cost $2,688."""
    total = 0
    for hour in range(96):
        at = DAY + timedelta(hours=hour)
        usage = usage_of(at, hour_of(node("a", "p4d.24xlarge"), {"train": (8, 60)}, at))
        rated = rate_usage(usage, Pricing.constant(Decimal("3.5")))
        total += rated.lines[0].allocated_usd or 0
    assert to_decimal(total) == 8 * 96 * Decimal("3.5") == 2688


policies = st.sampled_from([*SPLIT_POLICIES.values(), custom_policy(Decimal(3), Decimal("0.7"), Decimal("0.11"))])
usd_prices = st.decimals(Decimal("0.0001"), 500, places=7)


@settings(max_examples=150, deadline=None)
@given(cluster_observations(), metering_rules, policies, usd_prices, st.booleans())
def test_parts_of_node_sum_to_its_price_exactly(
    observation: Observation, metering: MeteringRules, policy: SplitPolicy, price: Decimal, is_per_gpu: bool
) -> None:
    usage = meter(observation, metering)
    book = PriceBook([Price("rates", "gpu-hour" if is_per_gpu else "node-hour", price)])
    shapes = dict.fromkeys(["", "p4d.24xlarge", "p6e-gb200.36xlarge"], SHAPES["p4d.24xlarge"])
    rated = rate_usage(usage, Pricing(book, ("rates",), policy, shapes))
    for node_hour, node_usage in zip(rated.nodes, usage.nodes or (), strict=True):
        hours = Fraction(node_usage.present.length, HOUR_MS) * (node_usage.gpus if is_per_gpu else 1)
        assert node_hour.capacity.node_cost_usd == amount(hours * Fraction(price))
        assert_node_adds_up(usage, rated, node_hour, Fraction(1) if is_per_gpu else part_of(policy, "p4d.24xlarge"))
    assert_units_add_up(usage, Pricing(book, ("rates",), policy, shapes))


@settings(max_examples=150, deadline=None)
@given(policies, usd_prices, st.integers(1, HOUR_MS), st.integers(0, 40), st.integers(1, 20), st.integers(0, 8))
def test_parts_of_billed_node_sum_to_billed_amount_exactly(
    policy: SplitPolicy, usd: Decimal, billed_ms: int, start: int, minutes: int, units: int
) -> None:
    pods_and_node = hour_of(
        node("a", "p5.48xlarge"), {"p": (units, minutes)} if units else {}, DAY, (start, start + minutes)
    )
    usage = usage_of(DAY, pods_and_node)
    bill = Bill({"i-a": BilledHour(amount(usd), "USD", billed_ms, is_final=True)})
    rated = rate_usage(usage, Pricing(PriceBook([]), ("cur",), policy, SHAPES, bill=bill))
    assert rated.nodes[0].capacity.node_cost_usd == amount(usd)
    assert_node_adds_up(usage, rated, rated.nodes[0], part_of(policy, "p5.48xlarge"))
    longest = max(billed_ms, minutes * MINUTE)
    assert rated.nodes[0].capacity.capacity_gpu_hours == amount(Fraction(8 * longest, HOUR_MS))


def part_of(policy: SplitPolicy, instance_type: str) -> Fraction:
    part = policy.gpu_part_of(SHAPES[instance_type])
    assert part is not None
    return part


def capacity_of(rated: HourRecord) -> CapacityCosts:
    """The hour's capacity, which is available."""
    assert rated.totals is not None
    assert rated.totals.capacity is not None
    return rated.totals.capacity


def assert_node_adds_up(usage: Usage, rated: HourRecord, node_hour: NodeHour, part: Fraction) -> None:
    """Assert that GPU part + host part = price, and that allocated and idle parts sum to the GPU part."""
    parts = node_hour.capacity
    node_lines = [
        line
        for pod, line in zip(usage.pods, rated.lines, strict=True)
        if (pod.node.name, pod.node.provider_id) == (node_hour.node, node_hour.provider_id)
    ]
    assert {line.node for line in node_lines} <= {node_hour.node}
    allocated = sum(line.allocated_usd or 0 for line in node_lines)
    gpus = allocated + parts.unallocated_usd + parts.stranded_usd + parts.unobserved_usd + parts.residual_usd
    assert allocated == node_hour.allocated_usd
    assert gpus + parts.host_usd == parts.node_cost_usd
    assert abs(gpus - parts.node_cost_usd * part) <= 2
    for line in node_lines:
        assert line.allocated_usd == (line.effective_usd or 0) + (line.waste_usd or 0) + (line.unmeasured_usd or 0)


def assert_units_add_up(usage: Usage, pricing: Pricing) -> None:
    """Assert that the business units together pay the allocated cost of all nodes."""
    units = (BusinessUnit("shared", ("a",), distribute="proportional"), BusinessUnit("b", ("b",)))
    record = build_record(usage, AttributionRules(pricing, units))
    if record.totals is None or usage.nodes is None:
        return
    by_unit = sum(costs.allocated_usd for costs in record.by_business_unit().values())
    assert by_unit == sum(node_hour.allocated_usd for node_hour in record.nodes)
