"""Recommendations for tests of what happens to them later."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpucost.features.recommendations.model import (
    Evidence,
    RecommendationContent,
    RecommendationKind,
    RecommendationSubject,
    Saving,
)
from tests.features.recommendations.simulated_fleet import START

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
SAVING = Saving(Decimal(2), Decimal(1), Decimal(3), None, None, Decimal(2))
PROPOSED = RecommendationContent(
    "idle", RecommendationSubject("demo", "research", "ns", "Deployment", "a"), "scale it to nothing", SAVING,
    Evidence(NOW, NOW, 700, 0, None, None, None), "high", "low", "", "low", "", Decimal(2), Decimal(0), Decimal(1),
)  # fmt: skip


def content(
    kind: RecommendationKind = "fewer-gpus", now: int = 8, then: int = 2, workload: str = "chat"
) -> RecommendationContent:
    zero = Decimal(0)
    return RecommendationContent(
        kind, RecommendationSubject("demo", "research", "ns", "Deployment", workload), "do it",
        Saving(Decimal(10_000), zero, zero, None, None, zero),
        Evidence(START, START + timedelta(days=30), 700, 0, None, None, None),
        "high", "low", "", "low", "", Decimal(now), Decimal(then), Decimal(16),
    )  # fmt: skip
