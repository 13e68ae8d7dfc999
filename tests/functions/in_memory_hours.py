"""In-memory hours and settings for tests of the api function."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from gpucost.core.amounts import CapacityCosts, Costs, Totals, split
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.hour_record import ClusterCharge, Coverage, Line, ModelHour, NodeHour, Status
from gpucost.core.hours import floor_day
from gpucost.core.ledger import (
    ClosedMonth,
    DaySummary,
    FactKey,
    HourSummary,
    Manifest,
    Restatement,
    days_with_hours,
    sum_day,
)
from gpucost.settings_document import parse_settings
from gpucost.storage.ports import StoredSettings
from tests.functions.api_requests import ApiResponse, iam_caller
from tests.records import amount

NOW = datetime(2026, 11, 20, 0, 5, tzinfo=UTC)
NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
DAY = {"start": "2026-11-19T00:00:00Z", "end": "2026-11-20T00:00:00Z"}
DOCUMENT = """
clusters:
  - {name: east, prometheus: {url: "http://127.0.0.1:9090"}}
  - {name: west, prometheus: {url: "http://127.0.0.1:9090"}}
pricing: {source: constant, gpu_hourly_usd: 12}
business_units: [{name: research, namespaces: ["r*"]}, {name: idle, namespaces: ["idle"]}]
"""
CAPACITY = CapacityCosts(node_cost_usd=amount(96))
FINANCE = iam_caller("arn:aws:iam::123456789012:user/finance")
INJECTION = '=cmd|"<script>"\n,<!here>'


Ask = Callable[..., ApiResponse]


class InMemoryHours:
    """In-memory settings and hours that a test prepares; raises `failure` if it is set."""

    def __init__(self) -> None:
        self.summaries_by_hour: dict[tuple[str, datetime], HourSummary] = {}
        self.failure: Exception | None = None
        self.document = DOCUMENT
        self.versions = self
        self.months: list[ClosedMonth] = []

    def closed_months(self) -> list[ClosedMonth]:
        return self.months

    def current(self) -> StoredSettings:
        if self.failure is not None:
            raise self.failure
        return StoredSettings(1, self.document, parse_settings(self.document), "test", NOW)

    def put(
        self,
        cluster: str,
        hour: datetime,
        groups: dict[tuple[str, str], Costs],
        status: Status = "complete",
        capacity: CapacityCosts | None = CAPACITY,
    ) -> None:
        totals = None if status == "incomplete" else Totals(Costs.total(groups.values()), capacity)
        coverage = Coverage(Decimal("0.25") if totals is None else Decimal(1), None)
        manifest = Manifest(cluster, hour, status, 1, "run", 1, coverage, 0, None, NOW)
        self.summaries_by_hour[cluster, hour] = HourSummary(cluster, hour, (manifest,), totals, CostsByKey.of(groups))

    def summaries(self, cluster: str, start: datetime, end: datetime) -> list[HourSummary]:
        sorted_summaries = sorted(self.summaries_by_hour.items())
        return [summary for (name, hour), summary in sorted_summaries if name == cluster and start <= hour < end]

    def summaries_of(self, manifests: Sequence[Manifest]) -> list[HourSummary]:
        return [self.summaries_by_hour[manifest.cluster, manifest.hour] for manifest in manifests]

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        return [summary.manifest for summary in self.summaries(cluster, start, end)]

    def days_of(self, manifests: Sequence[Manifest]) -> list[DaySummary]:
        """Sums of each day, computed from its hours as the table does (tests/storage/test_rollups.py)."""
        days = []
        for day in days_with_hours(manifest.hour for manifest in manifests):
            day_manifests = [manifest for manifest in manifests if floor_day(manifest.hour) == day]
            days.append(sum_day(day_manifests[0].cluster, day, self.summaries_of(day_manifests)))
        return days

    def facts_of(
        self, manifests: Sequence[Manifest], business_unit: str | None = None
    ) -> list[tuple[datetime, CostsByKey[FactKey]]]:
        """Each hour's groups, as workloads that have no other facts."""
        assert business_unit is None
        return [
            (
                floor_day(summary.start),
                summary.costs.group_by(lambda group: FactKey(group[0], group[1], "", "", "", "", "", "", "", "", ())),
            )
            for summary in self.summaries_of(manifests)
        ]

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        """The nodes below have no pods."""
        return []

    def models_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[ModelHour, ...]]:
        """No pod is an inference server."""
        return {}

    def nodes_and_charges_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """A node with a price, a node without one, and an unused commitment."""
        two = amount(2)
        priced = CapacityCosts(
            capacity_gpu_hours=two, unallocated_gpu_hours=two, node_cost_usd=two, unallocated_usd=two
        )
        unknown = CapacityCosts(capacity_gpu_hours=two, unallocated_gpu_hours=two, unpriced_capacity_gpu_hours=two)
        facts = ("pool", "g5.xlarge", "spot", "a", "A10G")
        nodes = (
            NodeHour("n1", "aws:///a/i-1", *facts, "spot", "scad", None, 0, priced),
            NodeHour("n2", "aws:///a/i-2", *facts, "", "", None, 0, unknown),
        )
        return nodes, (ClusterCharge("unused-savings-plan", "sp-1", amount(3)),)

    def restatements(self, cluster: str, start: datetime, end: datetime) -> list[Restatement]:
        """The first hour of every cluster cost twice as much before."""
        summaries = self.summaries(cluster, start, end)[:1]
        return [
            Restatement(
                cluster,
                summary.start,
                2,
                NOW,
                3,
                "a deal",
                doubled(summary.totals),
                summary.totals,
                {unit: (costs + costs, costs) for (unit, _), costs in summary.costs.items()},
            )
            for summary in summaries
            if summary.totals is not None
        ]

    def notes_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[str, ...]]:
        return {manifest.hour: ("a note",) for manifest in manifests}


def doubled(totals: Totals) -> Totals:
    return Totals(totals.costs + totals.costs, totals.capacity)


def usd(number: str) -> Costs:
    """Costs with an uneven split, so that sums must be exact to be right."""
    allocated = amount(number)
    effective, waste, unmeasured = split(allocated, [1, 4, 2])
    return Costs(
        allocated_gpu_hours=round(Fraction(allocated, 12)),
        allocated_usd=allocated,
        effective_usd=effective,
        waste_usd=waste,
        unmeasured_usd=unmeasured,
    )


def at(hour: int, day: int = 19) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=UTC)
