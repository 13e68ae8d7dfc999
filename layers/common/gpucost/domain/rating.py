"""Rating: from metered GPU time to USD, exact to 1e-12, every node's parts summing to its cost (design §4)."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gpucost.domain.hours import HOUR_MS
from gpucost.domain.model import Capacity
from gpucost.domain.money import ZERO, quantize, split_each
from gpucost.domain.usage import NodeUsage, PodUsage, Usage


@dataclass(frozen=True, slots=True)
class Rate:
    """The price of one physical GPU for an hour, and where it came from."""

    gpu_hourly_usd: Decimal
    source: str
    split_policy: str


@dataclass(frozen=True, slots=True)
class RatedPod:
    """A pod's usage with its amounts: `allocated = effective + waste + unmeasured`, in GPU-hours and in USD."""

    usage: PodUsage
    rate: Rate
    allocated_gpu_hours: Decimal
    effective_gpu_hours: Decimal
    unmeasured_gpu_hours: Decimal
    allocated_usd: Decimal
    effective_usd: Decimal
    waste_usd: Decimal
    unmeasured_usd: Decimal


def rate_usage(usage: Usage, rate: Rate) -> tuple[list[RatedPod], Capacity | None]:
    """Price a cluster-hour's usage.

    Where the nodes are known, each node's hours and cost are split over what became of them, so that the identity
    holds to the last digit; where they are not, each pod is priced alone and the capacity is None.
    """
    if usage.nodes is None:
        return [_rate_alone(pod, rate) for pod in usage.pods], None
    on_node: dict[tuple[str, str], list[PodUsage]] = {}
    for pod in usage.pods:
        on_node.setdefault((pod.holding.node.name, pod.holding.node.provider_id), []).append(pod)
    rated: dict[int, RatedPod] = {}
    capacities: list[Capacity] = []
    for node in usage.nodes:
        pods = on_node.get((node.node.name, node.provider_id), [])
        lines, capacity = _rate_node(node, pods, rate)
        capacities.append(capacity)
        rated.update((id(pod), line) for pod, line in zip(pods, lines, strict=True))
    return [rated[id(pod)] for pod in usage.pods], Capacity.total(capacities)


def _rate_node(node: NodeUsage, pods: list[PodUsage], rate: Rate) -> tuple[list[RatedPod], Capacity]:
    hours = quantize(Fraction(node.total_gpu_ms, HOUR_MS))
    cost = quantize(Fraction(node.total_gpu_ms, HOUR_MS) * Fraction(rate.gpu_hourly_usd))
    rest = [node.unallocated_gpu_ms, node.stranded_gpu_ms, node.unobserved_gpu_ms]
    if node.excess_gpu_ms:
        # More held than the node has: every holder is priced as it is, and the contradiction shows as residual.
        lines = [_rate_alone(pod, rate) for pod in pods]
        rest_hours = [quantize(Fraction(part, HOUR_MS)) for part in rest]
        rest_usd = [quantize(Fraction(part, HOUR_MS) * Fraction(rate.gpu_hourly_usd)) for part in rest]
    else:
        weights = [pod.holding.gpu_ms for pod in pods] + rest
        parts, amounts = split_each([hours, cost], weights)
        lines = [_split_line(*line, rate) for line in zip(pods, parts, amounts, strict=False)]
        rest_hours, rest_usd = parts[len(pods) :], amounts[len(pods) :]
    accounted = sum((line.allocated_usd for line in lines), ZERO) + sum(rest_usd, ZERO)
    return lines, Capacity(
        capacity_gpu_hours=hours,
        unallocated_gpu_hours=rest_hours[0],
        stranded_gpu_hours=rest_hours[1],
        unobserved_gpu_hours=rest_hours[2],
        node_cost_usd=cost,
        unallocated_usd=rest_usd[0],
        stranded_usd=rest_usd[1],
        unobserved_usd=rest_usd[2],
        host_usd=ZERO,
        residual_usd=cost - accounted,
    )


def _rate_alone(pod: PodUsage, rate: Rate) -> RatedPod:
    hours = Fraction(pod.holding.gpu_ms, HOUR_MS)
    return _split_line(pod, quantize(hours), quantize(hours * Fraction(rate.gpu_hourly_usd)), rate)


def _split_line(pod: PodUsage, gpu_hours: Decimal, usd: Decimal, rate: Rate) -> RatedPod:
    weights: list[Fraction | int] = [pod.measurement.effective_gpu_ms, pod.waste_gpu_ms, pod.unmeasured_gpu_ms]
    hours, amounts = split_each([gpu_hours, usd], weights)
    return RatedPod(pod, rate, gpu_hours, hours[0], hours[2], usd, *amounts)
