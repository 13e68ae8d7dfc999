"""Hours of the demo's clusters as records, from the true figures of its scenarios and fixed prices.

No code of the product attributes these hours, so that a plan for them is checked without Prometheus in minutes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from gpucost.core.amounts import CapacityCosts
from gpucost.core.hour_record import Coverage, HourRecord, Line, NodeHour
from gpucost.features.recommendations.history import PodWait
from gpucost_devstack.fleet import demo, truth
from gpucost_devstack.fleet.scenario import Node, Pod, Scenario
from tests.records import amount

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NODE_USD = {"p5.48xlarge": Decimal(55), "p4d.24xlarge": Decimal(22), "g5.xlarge": Decimal(1), "g5.12xlarge": Decimal(6)}
"""Prices of nodes by the hour. Nodes of another type cost a dollar for each GPU."""


def hours_of_demo(cluster: str, start: datetime, days: int) -> list[HourRecord | None]:
    """The hours of a cluster of the demo; None where nothing was scraped."""
    records = []
    for number in range(24 * days):
        at = start + HOUR * number
        (scenario,) = (each for each in demo.scenarios(at, at + HOUR) if each.name == cluster)
        records.append(_record(scenario, at) if _is_scraped(scenario) else None)
    return records


def waits_of_demo(cluster: str, start: datetime, days: int) -> dict[datetime, list[PodWait]]:
    """The pods of a cluster that waited for a node, by UTC day."""
    waits: dict[datetime, list[PodWait]] = {}
    for day in (start + DAY * number for number in range(days)):
        (scenario,) = (each for each in demo.scenarios(day, day + DAY) if each.name == cluster)
        waits[day] = [wait for pod in scenario.pods if pod.node is None for wait in _waits_of(pod)]
    return waits


def _is_scraped(scenario: Scenario) -> bool:
    return any(source.scraping.successful_times(scenario.start, scenario.end) for source in scenario.ksm)


def _waits_of(pod: Pod) -> Iterator[PodWait]:
    overlaps = [
        (hour, float(_overlap((pod.bound_at, pod.deleted_at), 60 * hour, 60 * hour + 60)) / 60) for hour in range(24)
    ]
    hours = tuple((hour, share) for hour, share in overlaps if share)
    units = Counter[str]()
    for requests in pod.requests.values():
        units.update(requests)
    if hours:
        for resource, count in units.items():
            yield PodWait(pod.namespace, pod.name, pod.id, _resource(resource), count, hours)


def _record(scenario: Scenario, at: datetime) -> HourRecord:
    lines = [_line(line) for line in truth.true_hour(scenario, 0).lines]
    held: dict[str, int] = defaultdict(int)
    for line in lines:
        held[line.node] += line.allocated_gpu_hours
    nodes = [_node(node, share, held[node.name]) for node in scenario.nodes if (share := _share_of_hour(node))]
    return HourRecord(
        scenario.name, at, "complete", Coverage(Decimal(1), Decimal(1)), None, tuple(lines), nodes=tuple(nodes)
    )


def _node(node: Node, share: Fraction, held: int) -> NodeHour:
    rate = _gpu_usd(node)
    capacity = amount(share * node.gpus)
    unallocated = max(0, capacity - held)
    pool, zone, capacity_type = _labels(node)
    costs = CapacityCosts(
        capacity_gpu_hours=capacity,
        unallocated_gpu_hours=unallocated,
        node_cost_usd=amount(share * node.gpus * rate),
        unallocated_usd=round(unallocated * rate),
    )
    return NodeHour(
        node.name,
        node.provider_id,
        pool,
        node.instance_type,
        capacity_type,
        zone,
        node.model,
        "constant",
        "gpu-bears-all",
        None,
        round(held * rate),
        costs,
    )


def _line(line: truth.TrueLine) -> Line:
    pod, node = line.pod, line.pod.node
    assert node is not None
    pool, zone, capacity_type = _labels(node)
    kind, workload = pod.owners[-1] if pod.owners else ("Pod", pod.name)
    allocated, unmeasured = amount(line.allocated_gpu_hours.value), amount(line.unmeasured_gpu_hours.value)
    used = line.effective_gpu_hours
    effective = None if used is None else amount(used.value)
    rate = _gpu_usd(node)
    return Line(
        business_unit=pod.namespace,
        namespace=pod.namespace,
        workload_kind=kind,
        workload=workload,
        pod=pod.name,
        uid=pod.id,
        node=node.name,
        node_pool=pool,
        instance_type=node.instance_type,
        capacity_type=capacity_type,
        zone=zone,
        gpu_model=node.model,
        resource=_resource(line.resource),
        units=line.units,
        gpu_share=_decimal(line.gpu_share.value),
        gpu_share_source="whole",
        labels={},
        split_policy="gpu-bears-all",
        allocated_gpu_hours=allocated,
        effective_gpu_hours=effective,
        utilization=_decimal(used.value / line.observed_gpu_hours) if used and line.observed_gpu_hours else None,
        utilization_source=line.utilization_source,  # type: ignore[arg-type]
        unmeasured_gpu_hours=unmeasured,
        gpu_hourly_usd=_decimal(rate),
        price_source="constant",
        allocated_usd=round(allocated * rate),
        effective_usd=None if effective is None else round(effective * rate),
        unmeasured_usd=round(unmeasured * rate),
        waste_usd=round((allocated - unmeasured - (effective or 0)) * rate),
    )


def _labels(node: Node) -> tuple[str, str, str]:
    """Node pool, zone, capacity type."""
    return (
        node.labels.get("karpenter_sh_nodepool", ""),
        node.labels.get("topology_kubernetes_io_zone", ""),
        node.labels.get("karpenter_sh_capacity_type", "on-demand"),
    )


def _gpu_usd(node: Node) -> Fraction:
    usd = NODE_USD.get(node.instance_type)
    return Fraction(1) if usd is None else Fraction(usd) / Fraction(node.gpus)


def _share_of_hour(node: Node) -> Fraction:
    return _overlap(node.lifetime, 0, 60) / 60


def _overlap(interval: tuple[float | Fraction, float | Fraction], begin: int, end: int) -> Fraction:
    """The minutes of an interval in a range."""
    return max(Fraction(0), Fraction(min(interval[1], end)) - Fraction(max(interval[0], begin)))


def _decimal(fraction: Fraction) -> Decimal:
    return round(Decimal(fraction.numerator) / fraction.denominator, 12)


def _resource(label: str) -> str:
    """A resource's name in Kubernetes, from kube-state-metrics' spelling."""
    if label.startswith("nvidia_com_mig_"):
        return "nvidia.com/mig-" + label.removeprefix("nvidia_com_mig_").replace("_", ".", 1)
    return {"nvidia_com_gpu": "nvidia.com/gpu", "aws_amazon_com_neuron": "aws.amazon.com/neuron"}.get(label, label)
