"""A ledger of a large fleet, written straight into a table: 200 business units, 10,000 pods, any number of days.

Figures are drawn with all twelve digits and a price of its own per unit and hour, so that nothing compresses better
than it would in the worst month. Lines are drawn for single hours only: writing 840 hours of 10,000 of them takes the
local engine half an hour, and no access that is measured over a month reads any.
"""

import random
import zlib
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from msgspec.structs import replace

from gpucost.core.amounts import SCALE, CapacityCosts, Costs, Totals, to_decimal, to_fixed_point
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.hour_record import Coverage, HourRecord, Line, NodeHour
from gpucost.core.hours import DAY, HOUR, HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.ledger import FactKey, HourSummary, Manifest
from gpucost.core.metering.gpu_shares import GpuNode, GpuShare
from gpucost.core.metering.observations import PodObservation
from gpucost.core.metering.usage import NodeUsage, PodUsage, Usage, Use
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.rollups import RollupStore

UNITS = 200
PODS = 10_000
GPUS_PER_NODE = 8
WORKLOADS_PER_UNIT = 10
ZONES = ("a", "b", "c")


def unit_name(number: int) -> str:
    """Realistic names of business units."""
    return f"{('search', 'vision', 'speech', 'ranking', 'research')[number % 5]}-team-{number:03d}"


def fill(client: Any, table: str, cluster: str, start: datetime, days: int, *, seed: int = 1) -> None:
    """Write published hours, their days and their facts, and a last day of which the last hour is missing."""
    chance = random.Random(seed)
    ledger, rollups = _Prepared(DynamoDBTable(client, table)), RollupStore(DynamoDBTable(client, table))
    for day in (start + DAY * number for number in range(days)):
        summaries = [_summary(cluster, day + HOUR * hour, chance) for hour in range(24)]
        manifests = [ledger.put(summary) for summary in summaries]
        summaries = [
            replace(summary, manifests=(manifest,)) for summary, manifest in zip(summaries, manifests, strict=True)
        ]
        rollups.write_day(cluster, day, manifests, summaries)
        rollups.write_facts(cluster, day, manifests, dict(_facts(chance)))
        rollups.write_head(cluster, day, manifests, with_facts=True)
    last = start + DAY * days
    for hour in range(23):
        ledger.put(_summary(cluster, last + HOUR * hour, chance))


class _Prepared(Ledger):
    """Publishes summaries without lines."""

    def put(self, summary: HourSummary) -> Manifest:
        """Write a summary and its manifest."""
        coverage = summary.manifest.coverage
        record = _Summed(summary.cluster, summary.start, "complete", coverage, summary.totals, groups=summary.costs)
        return self.publish(record, replacing=None, settings_version=1, now=summary.start + HOUR)


class _Summed(HourRecord, frozen=True, kw_only=True):
    """A record with given sums."""

    groups: CostsByKey[tuple[str, str]]

    def by_namespace(self) -> CostsByKey[tuple[str, str]]:
        """The given sums."""
        return self.groups


def _summary(cluster: str, hour: datetime, chance: random.Random) -> HourSummary:
    groups = {(unit_name(i), f"team-{i:03d}-prod"): costs(chance, PODS // UNITS) for i in range(UNITS)}
    total = Costs.total(groups.values())
    capacity = CapacityCosts(*(costs(chance, PODS).allocated_usd for _ in CapacityCosts.names()))
    coverage = Coverage(_share(chance), _share(chance))
    manifest = Manifest(cluster, hour, "complete", 1, "", 1, coverage, 0, None, hour + HOUR)
    return HourSummary(cluster, hour, (manifest,), Totals(total, capacity), CostsByKey.of(groups))


def costs(chance: random.Random, gpus: int) -> Costs:
    """Random costs of some GPUs in an hour. One in ten is partly unmeasured."""
    held = chance.randrange(gpus * 10**12)
    unseen = chance.randrange(held + 1) if chance.random() < 0.1 else 0
    used = chance.randrange(held - unseen + 1)
    price = chance.randrange(1_000_000, 12_000_000)  # millionths of a dollar
    # Each line rounds for itself, so that sums differ by a few units of the last digit per pod from a single product.
    usd, used_usd, unseen_usd = (
        n * price // 10**6 + chance.randrange(-gpus, gpus + 1) if n else 0 for n in (held, used, unseen)
    )
    figures = (held, used, usd, used_usd, usd - used_usd - unseen_usd, unseen_usd, unseen, 0)
    return Costs(*figures)


def _facts(chance: random.Random) -> Iterator[tuple[FactKey, Costs]]:
    """A day's facts: each workload on one node pool, its pods in one zone."""
    for unit in range(UNITS):
        for number in range(WORKLOADS_PER_UNIT):
            kind = ("p5.48xlarge", "H100") if number % 3 else ("p4d.24xlarge", "A100")
            fact = FactKey(
                unit_name(unit),
                f"team-{unit:03d}-prod",
                "Deployment" if number % 2 else "Job",
                f"{('train', 'serve', 'eval', 'batch')[number % 4]}-{number}-{chance.randrange(10**4)}",
                f"pool-{number % 7}",
                kind[0],
                "spot" if number % 4 == 0 else "on-demand",
                kind[1],
                "nvidia.com/gpu",
                f"eu-central-1{chance.choice(ZONES)}",
                (("app", f"app-{number}"), ("team", f"team-{unit:03d}")),
            )
            yield fact, costs(chance, PODS // UNITS // WORKLOADS_PER_UNIT * 24)


def lines(seed: int = 1, pods: int = PODS) -> list[Line]:
    """The lines of one hour."""
    chance = random.Random(seed)
    lines = []
    for pod in range(pods):
        unit, line_costs = pod % UNITS, costs(chance, 1)
        held, used = line_costs.allocated_gpu_hours, line_costs.effective_gpu_hours
        number = pod // UNITS % WORKLOADS_PER_UNIT
        lines.append(
            Line(
                business_unit=unit_name(unit),
                namespace=f"team-{unit:03d}-prod",
                workload_kind="Deployment",
                workload=f"serve-{number}",
                pod=f"serve-{number}-{pod:08x}-{chance.randrange(16**5):05x}",
                uid=f"{chance.randrange(16**12):012x}-{pod:012x}",
                node=f"ip-10-0-{pod // 8 // 250}-{pod // 8 % 250}",
                node_pool=f"pool-{number % 7}",
                instance_type="p5.48xlarge",
                capacity_type="on-demand",
                zone=f"eu-central-1{ZONES[number % 3]}",
                gpu_model="H100",
                resource="nvidia.com/gpu",
                units=1,
                gpu_share=Decimal(1),
                gpu_share_source="whole",
                labels={"team": f"team-{unit:03d}"},
                split_policy="gpu-bears-all",
                allocated_gpu_hours=held,
                effective_gpu_hours=used,
                utilization=to_decimal(used * SCALE // max(1, held)),
                utilization_source="pod",
                unmeasured_gpu_hours=line_costs.unmeasured_gpu_hours,
                gpu_hourly_usd=_share(chance) * 12,
                price_source="spot",
                allocated_usd=line_costs.allocated_usd,
                effective_usd=line_costs.effective_usd,
                waste_usd=line_costs.waste_usd,
                unmeasured_usd=line_costs.unmeasured_usd,
            )
        )
    return lines


def record(cluster: str, hour: datetime, lines: list[Line], seed: int = 1) -> HourRecord:
    """The record of an hour with these lines, on nodes of eight GPUs."""
    chance = random.Random(seed)
    total = Costs.total(line.costs() for line in lines)
    nodes = tuple(
        NodeHour(
            node=f"ip-10-0-{n // 250}-{n % 250}",
            provider_id=_provider_id(n),
            node_pool=f"pool-{n % 7}",
            instance_type="p5.48xlarge",
            capacity_type="on-demand",
            zone=f"eu-central-1{ZONES[n % 3]}",
            gpu_model="H100",
            price_source="spot",
            split_policy="gpu-bears-all",
            billed_usd=None,
            allocated_usd=to_fixed_point(_share(chance) * 96),
            capacity=CapacityCosts(*(to_fixed_point(_share(chance) * 96) for _ in CapacityCosts.names())),
        )
        for n in range(-(-len(lines) // GPUS_PER_NODE))
    )
    return HourRecord(
        cluster,
        hour,
        "complete",
        Coverage(Decimal(1), Decimal("0.987654321")),
        Totals(total, CapacityCosts(node_cost_usd=total.allocated_usd)),
        tuple(lines),
        nodes=nodes,
    )


def usage(cluster: str, hour: datetime, lines: list[Line], seed: int = 1) -> Usage:
    """Usage that may have produced these lines."""
    chance = random.Random(seed)
    start, zero = to_epoch_ms(hour), Fraction(0)
    nodes = [
        GpuNode(
            f"ip-10-0-{n // 250}-{n % 250}",
            _provider_id(n),
            "p5.48xlarge",
            gpu_model="H100",
            physical_gpus=GPUS_PER_NODE,
        )
        for n in range(-(-len(lines) // GPUS_PER_NODE))
    ]
    pods = []
    for index, line in enumerate(lines):
        held = IntervalMs(start, start + chance.randrange(1, HOUR_MS))
        pod_observation = PodObservation(
            line.namespace, line.pod, line.uid, line.node, (), None, workload=line.workload
        )
        node = nodes[index // GPUS_PER_NODE]
        mean = Fraction(chance.randrange(10**9), 10**9)
        pods.append(
            PodUsage(
                pod_observation,
                node,
                "nvidia_com_gpu",
                1,
                GpuShare(Fraction(1), "capacity"),
                held,
                held,
                held.end,
                use=Use("pod", mean, held.length, held.length * mean),
            )
        )
    there, all_gpus = IntervalMs(start, start + HOUR_MS), Fraction(GPUS_PER_NODE * HOUR_MS)
    node_usages = tuple(NodeUsage(node, there, all_gpus, zero, zero, zero, zero, zero, zero) for node in nodes)
    return Usage(cluster, hour, Coverage(Decimal(1), Decimal(1)), tuple(pods), node_usages, ())


def _provider_id(node: int) -> str:
    return f"aws:///eu-central-1{ZONES[node % 3]}/i-{zlib.crc32(str(node).encode()):08x}{node:09x}"


def _share(chance: random.Random) -> Decimal:
    return to_decimal(chance.randrange(10**12))
