"""A small month of hours with MIG shares, uneven times and prices, a shared unit, nodes without a price, unmeasured
time, hours without figures, and inference servers, some of whose tokens are unknown."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from msgspec.structs import replace

from gpucost.core.attribution import AttributionRules, BusinessUnit, build_record
from gpucost.core.hour_record import Coverage, HourRecord
from gpucost.core.hours import HOUR, HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode, GpuShare
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.core.metering.observations import PodObservation
from gpucost.core.metering.usage import NodeUsage, PodUsage, Usage, Use
from gpucost.core.pricing.node_costs import Pricing
from gpucost.core.pricing.prices import Price, PriceBook

START = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = 30
HOURS_OF_A_DAY = (0, 23)
NASTY_LABEL = "=HYPERLINK(1)"
SETTINGS = """
clusters:
  - {name: east, prometheus: {url: "http://127.0.0.1:9090"}}
  - {name: west.eu, prometheus: {url: "http://127.0.0.1:9090"}}
pricing: {source: constant, gpu_hourly_usd: 12}
business_units:
  - {name: research, namespaces: ["bu-a", "research-*"]}
  - {name: "=assistant", namespaces: ["chat"]}
  - {name: platform, namespaces: ["gpu-operator"], distribute: proportional}
"""
UNITS = (
    BusinessUnit("research", ("bu-a", "research-*")),
    BusinessUnit("=assistant", ("chat",)),
    BusinessUnit("platform", ("gpu-operator",), distribute="proportional"),
)
SEVENTH = GpuShare(Fraction(1, 7), "mig-profile")
WHOLE = GpuShare(Fraction(1), "capacity")


def month(cluster: str, days: int = DAYS) -> Iterator[HourRecord]:
    """Two hours of each day; one hour of the eighth day is incomplete."""
    for day in range(days):
        for hour in HOURS_OF_A_DAY:
            start = START + timedelta(days=day, hours=hour)
            if (day, hour) == (7, 23):
                yield HourRecord(cluster, start, "incomplete", None, None, notes=("no scrape was seen",))
            else:
                yield an_hour(cluster, start, day * 24 + hour)


def restated_hour() -> HourRecord:
    """The first hour of the fourth day in the east, at a price that became known later."""
    return an_hour("east", START + timedelta(days=3), 3 * 24, price_factor=Decimal("0.7"))


def an_hour(cluster: str, start: datetime, seed: int, price_factor: Decimal = Decimal(1)) -> HourRecord:
    """An hour that depends on its seed."""
    zone = "eu-central-1a"
    large = GpuNode(
        "n0",
        f"aws:///{zone}/i-0{cluster}",
        "p4d.24xlarge",
        zone=zone,
        physical_gpus=8,
        capacity_type="spot",
        node_pool="train",
        gpu_model="A100",
    )
    small = GpuNode("n1", f"aws:///{zone}/i-1{cluster}", "g5.xlarge", zone=zone, physical_gpus=1, node_pool="chat")
    bare = GpuNode("n2", f"aws:///{zone}/i-2{cluster}", "g6.xlarge", physical_gpus=1)
    begin = to_epoch_ms(start)
    pods = [
        _pod(large, begin, "bu-a", f"train-{seed % 4}", 3, SEVENTH, 1 + seed % 3_599_999, Fraction(seed % 11, 11)),
        _pod(
            large, begin, f"research-{seed % 3}", "sweep", 5, WHOLE, 3_541_117, Fraction(1, 3), observed=Fraction(2, 3)
        ),
        _pod(small, begin, "chat", "serve", 1, WHOLE, HOUR_MS, None if seed % 2 else Fraction(0)),
        _pod(bare, begin, "gpu-operator", "validator", 1, WHOLE, 1_234_567, Fraction(1, 7)),
    ]
    nodes = tuple(_node(node, begin, pods, seed) for node in (large, small, bare))
    # Prices that do not divide evenly over GPU time; the third type has a price in odd hours only.
    prices = [
        Price("on-demand", "node-hour", price_factor * (10_000 + seed) / 997, {"instance_type": "p4d.24xlarge"}),
        Price("on-demand", "node-hour", Decimal("1.006"), {"instance_type": "g5.xlarge"}),
    ]
    if seed % 2:
        prices.append(Price("on-demand", "node-hour", Decimal("0.8048"), {"instance_type": "g6.xlarge"}))
    usage = Usage(
        cluster,
        start,
        Coverage(Decimal(1), Decimal("0.983333333333")),
        tuple(pods),
        nodes,
        (),
        served=_served(pods, seed),
    )
    return build_record(
        usage, AttributionRules(Pricing(PriceBook(prices), ("on-demand",)), UNITS, {"team": "label_team"})
    )


def seed_of(hour: datetime) -> int:
    """The seed of an hour of the month."""
    return (hour - START) // HOUR


def has_servers(hour: datetime) -> bool:
    """Whether inference servers were seen."""
    return seed_of(hour) % 7 != 6


def _pod(
    node: GpuNode,
    begin: int,
    namespace: str,
    name: str,
    units: int,
    share: GpuShare,
    length: int,
    used: Fraction | None,
    observed: Fraction = Fraction(1),
) -> PodUsage:
    time = IntervalMs(begin, begin + length)
    pod = PodObservation(
        namespace,
        f"{name}-x",
        f"{name}-{node.name}-uid",
        node.name,
        (),
        None,
        workload=name,
        workload_kind="Deployment",
        labels={"label_team": NASTY_LABEL},
    )
    unmeasured = PodUsage(pod, node, "nvidia_com_gpu", units, share, time, time, time.end)
    if used is None:
        return unmeasured
    return replace(unmeasured, use=Use("pod", used, length * observed, unmeasured.gpu_ms * observed * used))


def _served(pods: list[PodUsage], seed: int) -> tuple[ServedTokens, ...]:
    """What servers in the first three pods processed: unknown, of one model, and of two; nothing in every seventh hour.

    The model and its adapter have different counters. The adapter is not called in every fifth hour.
    """
    if seed % 7 == 6:
        return ()
    unknown, single, double = ((pod.pod.namespace, pod.pod.pod) for pod in pods[:3])
    return (
        ServedTokens(*unknown, "vllm", ""),
        ServedTokens(*single, "sglang", "mistral", 1_000_000 + seed, 7_919 * seed, 31 * seed, 100 + seed),
        ServedTokens(*double, "vllm", "llama", 700_001, 90_000 + seed, 1_000, 17),
        ServedTokens(*double, "vllm", "llama-sql", 13 * seed * (seed % 5), 11 * (seed % 5), None, seed % 5),
    )


def _node(node: GpuNode, begin: int, pods: list[PodUsage], seed: int) -> NodeUsage:
    total = Fraction((node.physical_gpus or 0) * HOUR_MS)
    held = sum((pod.gpu_ms for pod in pods if pod.node is node), Fraction(0))
    rest, zero = total - held, Fraction(0)
    stranded, unobserved = (rest / 3, rest / 7 if seed % 5 == 0 else zero)
    interval = IntervalMs(begin, begin + HOUR_MS)
    return NodeUsage(node, interval, total, rest - stranded - unobserved, zero, stranded, zero, unobserved, zero)
