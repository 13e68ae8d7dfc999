"""Rating: multiplies metered GPU time by prices, exact to 1e-12, so that the parts of every node sum to its cost."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

from gpucost.core.amounts import CapacityCosts, Costs, Totals, quantize, split_each, split_in_two, to_fixed_point
from gpucost.core.hour_record import ClusterCharge, HourRecord, Line, NodeHour
from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.energy import JOULES_PER_KWH
from gpucost.core.metering.gpu_shares import GpuNode, to_kubernetes_resource
from gpucost.core.metering.observations import PodObservation
from gpucost.core.metering.usage import NodeEnergy, NodeUsage, PodUsage, Usage
from gpucost.core.pricing.emissions import Emissions
from gpucost.core.pricing.node_costs import NodeCost, Pricing, Unpriced
from gpucost.core.pricing.prices import attributes_of_node

ChargeTo = Callable[[PodObservation], tuple[str, dict[str, str]]]
"""Returns the business unit that pays for a pod, and the labels of its line."""


def rate_usage(
    usage: Usage,
    pricing: Pricing,
    charge_to: ChargeTo = lambda pod: (pod.namespace, {}),
    emissions: Emissions | None = None,
) -> HourRecord:
    """Rate a cluster-hour's usage: one line per pod and resource, in the order of the usage's pods.

    If the nodes are known, each node's GPU-hours and cost are split into their parts, which sum to the node's cost to
    the last digit. Otherwise each pod is priced alone and the capacity is None. A node without a price has no money
    and is named in the notes; it does not change the others. The hour is *provisional* where a node has no price, or a
    price that a preferred source will replace.
    """
    if usage.nodes is None:
        return _rate_pods_alone(usage, pricing, charge_to, emissions)

    # Each node with its pods. The lines keep the order of the usage's pods.
    on_node: dict[tuple[str, str], list[int]] = {}
    for index, pod in enumerate(usage.pods):
        on_node.setdefault((pod.node.name, pod.node.provider_id), []).append(index)
    line_of: dict[int, Line] = {}
    nodes: list[NodeHour] = []
    node_costs: list[NodeCost | Unpriced] = []
    for node in usage.nodes:
        indexes = on_node.get((node.node.name, node.provider_id), [])
        pods = [usage.pods[index] for index in indexes]
        node_cost = pricing.node_cost(node.node, usage.cluster, node.present, node.gpus)
        node_costs.append(node_cost)
        lines, capacity = _rate_node(node, pods, node_cost, charge_to)
        if node.energy is not None:
            factor = _factor(node.node, usage.cluster, emissions)
            lines, energy = _with_energy(node.energy, pods, lines, factor)
            capacity += energy
        nodes.append(_node_hour(node, node_cost, lines, capacity))
        line_of.update(zip(indexes, lines, strict=True))

    # Charges to the cluster other than for its nodes. What its nodes used of a commitment is in their cost already.
    prepaid_nodes = [
        (node.node, node.present)
        for node, node_cost in zip(usage.nodes, node_costs, strict=True)
        if isinstance(node_cost, NodeCost) and node_cost.source in {"capacity-block", "override"}
    ]
    all_charges = pricing.cluster_charges(usage.cluster, _interval(usage), prepaid_nodes)
    charges = [charge for charge in all_charges if charge.currency == pricing.currency]
    foreign_charge_notes = [
        f"{charge.kind} of {charge.reference} is in {charge.currency} and not in any sum: "
        f"the hour is in {pricing.currency}"
        for charge in all_charges
        if charge.currency != pricing.currency
    ]

    capacity = CapacityCosts.total([*(node.capacity for node in nodes), *map(_charge_capacity, charges)])
    lines = [line_of[index] for index in range(len(usage.pods))]
    return _hour_record(usage, pricing, lines, nodes, capacity, charges, node_costs, foreign_charge_notes)


def _rate_pods_alone(usage: Usage, pricing: Pricing, charge_to: ChargeTo, emissions: Emissions | None) -> HourRecord:
    """Rate the usage of an hour whose nodes are unknown."""
    priced_pods = [_node_cost_for_pod(usage, pod, pricing) for pod in usage.pods]
    lines = [
        _rate_pod_alone(pod, node_cost, hourly, charge_to)
        for pod, (node_cost, hourly) in zip(usage.pods, priced_pods, strict=True)
    ]
    if any(pod.energy is not None for pod in usage.pods):
        lines = [
            _with_energy(None, [pod], [line], _factor(pod.node, usage.cluster, emissions))[0][0]
            for pod, line in zip(usage.pods, lines, strict=True)
        ]
    charge_notes = [
        f"{charge.kind} of {charge.reference} is not in any sum: the nodes are unknown"
        for charge in pricing.cluster_charges(usage.cluster, _interval(usage), ())
    ]
    node_costs = [node_cost for node_cost, _ in priced_pods]
    return _hour_record(usage, pricing, lines, [], None, (), node_costs, charge_notes)


def _interval(usage: Usage) -> IntervalMs:
    start = to_epoch_ms(usage.hour)
    return IntervalMs(start, start + HOUR_MS)


def _hour_record(
    usage: Usage,
    pricing: Pricing,
    lines: Sequence[Line],
    nodes: Sequence[NodeHour],
    capacity: CapacityCosts | None,
    charges: Sequence[ClusterCharge],
    node_costs: Sequence[NodeCost | Unpriced],
    notes: Sequence[str],
) -> HourRecord:
    price_notes = (node_cost.note for node_cost in node_costs)
    is_final = all(isinstance(node_cost, NodeCost) and node_cost.is_final for node_cost in node_costs)
    return HourRecord(
        cluster=usage.cluster,
        hour=usage.hour,
        status="complete" if is_final else "provisional",
        coverage=usage.coverage,
        totals=Totals(Costs.total(line.costs() for line in lines), capacity),
        lines=tuple(lines),
        notes=(*usage.notes, *dict.fromkeys(filter(None, [*price_notes, *notes]))),
        nodes=tuple(nodes),
        charges=tuple(charges),
        currency=pricing.currency,
    )


def _rate_node(
    node: NodeUsage, pods: Sequence[PodUsage], node_cost: NodeCost | Unpriced, charge_to: ChargeTo
) -> tuple[list[Line], CapacityCosts]:
    outside = _outside_kubernetes(node, node_cost)
    total = node.total_gpu_ms + outside
    hours = to_fixed_point(Fraction(total, HOUR_MS))
    cost = 0 if isinstance(node_cost, Unpriced) else to_fixed_point(node_cost.cost)
    of_gpus = 0 if isinstance(node_cost, Unpriced) else min(to_fixed_point(node_cost.gpus_cost), cost)
    hourly = None if isinstance(node_cost, Unpriced) or not total else node_cost.gpus_cost * HOUR_MS / total
    rest = [node.unallocated_gpu_ms, node.stranded_gpu_ms + outside, node.unobserved_gpu_ms]
    if node.excess_gpu_ms or not total:
        # Pods hold more than the node has. Each is priced as reported, and the contradiction shows as residual.
        lines = [_rate_pod_alone(pod, node_cost, hourly, charge_to) for pod in pods]
        rest_hours = [to_fixed_point(Fraction(part, HOUR_MS)) for part in rest]
        rest_usd = [to_fixed_point(Fraction(part, HOUR_MS) * (hourly or 0)) for part in rest]
    else:
        parts, amounts = split_each([hours, of_gpus], [pod.gpu_ms for pod in pods] + rest)
        rounded = _rounded(hourly)
        lines = [
            _line(pod, gpu_hours, usd, node_cost, rounded, charge_to)
            for pod, gpu_hours, usd in zip(pods, parts, amounts, strict=False)
        ]
        rest_hours, rest_usd = parts[len(pods) :], amounts[len(pods) :]
    accounted = sum(line.allocated_usd or 0 for line in lines) + sum(rest_usd)
    return lines, CapacityCosts(
        capacity_gpu_hours=hours,
        unallocated_gpu_hours=rest_hours[0],
        stranded_gpu_hours=rest_hours[1],
        unobserved_gpu_hours=rest_hours[2],
        node_cost_usd=cost,
        unallocated_usd=rest_usd[0],
        stranded_usd=rest_usd[1],
        unobserved_usd=rest_usd[2],
        host_usd=cost - of_gpus,
        residual_usd=of_gpus - accounted,
        unpriced_capacity_gpu_hours=hours if isinstance(node_cost, Unpriced) else 0,
    )


def _factor(node: GpuNode, cluster: str, emissions: Emissions | None) -> Fraction | None:
    """Return the kg CO2e of a kWh that a node's GPUs draw; None if unknown."""
    return None if emissions is None else emissions.kg_per_kwh(cluster, attributes_of_node(node, cluster)["region"])


def _with_energy(
    node: NodeEnergy | None, pods: Sequence[PodUsage], lines: Sequence[Line], factor: Fraction | None
) -> tuple[list[Line], CapacityCosts]:
    """Split the energy of a node's GPUs, and its emissions, into those of its lines, idle and not attributed.

    If the node's energy is unknown, its GPUs drew what its pods did.
    """
    of_pods = [Fraction(0) if pod.energy is None else pod.energy.joules for pod in pods]
    node = node or NodeEnergy(sum(of_pods, Fraction(0)))
    weights = [*of_pods, node.idle_joules, node.joules - node.idle_joules - sum(of_pods)]
    kwh = node.joules / JOULES_PER_KWH
    total, emitted = to_fixed_point(kwh), 0 if factor is None else to_fixed_point(kwh * factor)
    energies, emissions = split_each([total, emitted], weights)
    with_energy = [
        line
        if pod.energy is None
        else line._replace(
            energy_kwh=energy_kwh,
            energy_gpu_hours=min(to_fixed_point(pod.energy.gpu_ms / HOUR_MS), line.allocated_gpu_hours),
            co2e_kg=None if factor is None else co2e_kg,
        )
        for pod, line, energy_kwh, co2e_kg in zip(pods, lines, energies, emissions, strict=False)
    ]
    return with_energy, CapacityCosts(
        device_energy_kwh=total,
        idle_energy_kwh=energies[-2],
        unattributed_energy_kwh=energies[-1],
        device_energy_gpu_hours=to_fixed_point(Fraction(node.measured_gpu_ms, HOUR_MS)),
        device_co2e_kg=emitted,
        idle_co2e_kg=emissions[-2],
        unattributed_co2e_kg=emissions[-1],
        device_energy_without_factor_kwh=total if factor is None else 0,
    )


def _outside_kubernetes(node: NodeUsage, node_cost: NodeCost | Unpriced) -> Fraction:
    """Return the GPU time that was billed before the node joined or after it left, when no pod could hold it."""
    if isinstance(node_cost, Unpriced) or node_cost.billed_ms is None:
        return Fraction(0)
    return node.gpus * max(0, node_cost.billed_ms - node.present.length)


def _node_cost_for_pod(usage: Usage, pod: PodUsage, pricing: Pricing) -> tuple[NodeCost | Unpriced, Fraction | None]:
    """Return the price of a pod's node, and of one of its GPUs for an hour, if the node's usage is unknown."""
    node = pod.node
    start = to_epoch_ms(usage.hour)
    # Without the number of GPUs, only a price per GPU can be used, for which one GPU is as good as any number.
    node_cost = pricing.node_cost(
        node, usage.cluster, IntervalMs(start, start + HOUR_MS), Fraction(node.physical_gpus or 1)
    )
    if isinstance(node_cost, Unpriced):
        return node_cost, None
    if node.physical_gpus is None and not node_cost.is_per_gpu:
        reason = f"the number of GPUs of node {node.name} is unknown, so its {node_cost.source} price cannot be split"
        return Unpriced(reason), None
    return node_cost, node_cost.gpus_cost / (node.physical_gpus or 1)


def _rate_pod_alone(
    pod: PodUsage, node_cost: NodeCost | Unpriced, hourly: Fraction | None, charge_to: ChargeTo
) -> Line:
    hours = Fraction(pod.gpu_ms, HOUR_MS)
    usd = to_fixed_point(hours * (hourly or 0))
    return _line(pod, to_fixed_point(hours), usd, node_cost, _rounded(hourly), charge_to)


def _rounded(hourly: Fraction | None) -> Decimal | None:
    return None if hourly is None else quantize(hourly)


def _line(
    pod: PodUsage, gpu_hours: int, usd: int, node_cost: NodeCost | Unpriced, hourly: Decimal | None, charge_to: ChargeTo
) -> Line:
    """Split a pod's GPU-hours and cost into effective, waste and unmeasured. Without a price, money is None."""
    is_priced = hourly is not None
    totals = gpu_hours, usd if is_priced else 0
    unmeasured_ms = pod.unmeasured_gpu_ms
    unmeasured_hours = unmeasured_usd = 0
    if unmeasured_ms or not pod.gpu_ms:
        (effective_hours, _, unmeasured_hours), (effective_usd, waste_usd, unmeasured_usd) = split_each(
            totals, [pod.effective_gpu_ms, pod.waste_gpu_ms, unmeasured_ms]
        )
    else:
        (effective_hours, _), (effective_usd, waste_usd) = split_in_two(totals, pod.effective_gpu_ms, pod.gpu_ms)
    observation, node, use = pod.pod, pod.node, pod.use
    business_unit, labels = charge_to(observation)
    claimed = observation.claimed_device
    priced = node_cost if isinstance(node_cost, NodeCost) else None
    is_unmeasured = use.source == "none" and pod.running.length > 0
    return Line(
        business_unit=business_unit,
        namespace=observation.namespace,
        workload_kind=observation.workload_kind,
        workload=observation.workload,
        pod=observation.pod,
        uid=observation.uid,
        node=node.name,
        node_pool=node.node_pool,
        instance_type=node.instance_type,
        capacity_type=node.capacity_type,
        zone=node.zone,
        gpu_model=node.gpu_model,
        resource=to_kubernetes_resource(pod.resource),
        units=pod.units,
        gpu_share=pod.share.rounded,
        gpu_share_source=pod.share.source,
        labels=labels,
        split_policy=priced.split_policy if priced else "",
        allocated_gpu_hours=gpu_hours,
        effective_gpu_hours=None if is_unmeasured else effective_hours,
        utilization=None if use.utilization is None else quantize(use.utilization),
        utilization_source=use.source,
        unmeasured_gpu_hours=unmeasured_hours,
        gpu_hourly_usd=hourly,
        price_source=priced.source if priced else "",
        allocated_usd=usd if is_priced else None,
        effective_usd=None if is_unmeasured or not is_priced else effective_usd,
        waste_usd=None if not is_priced or (is_unmeasured and not waste_usd) else waste_usd,
        unmeasured_usd=unmeasured_usd if is_priced else None,
        used_beyond_allocation_gpu_hours=to_fixed_point(Fraction(use.beyond_allocation_gpu_ms, HOUR_MS))
        if use.beyond_allocation_gpu_ms
        else 0,
        resource_claim=claimed.claim if claimed else "",
        dra_driver=claimed.driver if claimed else "",
        instance_type_source=node.instance_type_source,
    )


def _node_hour(
    usage: NodeUsage, node_cost: NodeCost | Unpriced, lines: Sequence[Line], capacity: CapacityCosts
) -> NodeHour:
    node = usage.node
    priced = node_cost if isinstance(node_cost, NodeCost) else None
    return NodeHour(
        node=node.name,
        provider_id=node.provider_id,
        node_pool=node.node_pool,
        instance_type=node.instance_type,
        capacity_type=node.capacity_type,
        zone=node.zone,
        gpu_model=node.gpu_model,
        price_source=priced.source if priced else "",
        split_policy=priced.split_policy if priced else "",
        billed_usd=priced.unblended_amount if priced else None,
        allocated_usd=sum(line.allocated_usd or 0 for line in lines),
        capacity=capacity,
        instance_type_source=node.instance_type_source,
    )


def _charge_capacity(charge: ClusterCharge) -> CapacityCosts:
    hours, amount = charge.gpu_hours or 0, charge.amount
    return CapacityCosts(
        capacity_gpu_hours=hours, unallocated_gpu_hours=hours, node_cost_usd=amount, unallocated_usd=amount
    )
