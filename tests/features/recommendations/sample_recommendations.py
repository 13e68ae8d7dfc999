"""Recommendations for tests of what happens to them later."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpucost.features.recommendations.kinds import KindName
from gpucost.features.recommendations.model import Evidence, RecommendationContent, RecommendationSubject, Saving
from tests.features.recommendations.simulated_fleet import START

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
SAVING = Saving(Decimal(2), Decimal(1), Decimal(3), None, None, Decimal(2))
PROPOSED = RecommendationContent(
    kind="idle",
    subject=RecommendationSubject("demo", "research", "ns", "Deployment", "a"),
    summary="scale it to nothing",
    saving=SAVING,
    evidence=Evidence(NOW, NOW, 700, 0, None, None, None),
    confidence="high",
    risk="low",
    risk_note="",
    effort="low",
    patch="",
    current_gpus=Decimal(2),
    recommended_gpus=Decimal(0),
    usd_hourly=Decimal(1),
)


def content(
    kind: KindName = "fewer-gpus", now: int = 8, then: int = 2, workload: str = "chat"
) -> RecommendationContent:
    zero = Decimal(0)
    return RecommendationContent(
        kind=kind,
        subject=RecommendationSubject("demo", "research", "ns", "Deployment", workload),
        summary="do it",
        saving=Saving(Decimal(10_000), zero, zero, None, None, zero),
        evidence=Evidence(START, START + timedelta(days=30), 700, 0, None, None, None),
        confidence="high",
        risk="low",
        risk_note="",
        effort="low",
        patch="",
        current_gpus=Decimal(now),
        recommended_gpus=Decimal(then),
        usd_hourly=Decimal(16),
    )
