"""States of a recommendation: applied when the figures show it, verified after a week, withdrawn if unsupported."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from gpucost.core.errors import InvalidInputError
from gpucost.features.recommendations.lifecycle import dismiss, reopen, update_recommendations
from gpucost.features.recommendations.measuring import SubjectHour
from gpucost.features.recommendations.model import (
    Recommendation,
    RecommendationContent,
    RecommendationSubject,
    recommendation_id,
)
from tests.features.recommendations.sample_recommendations import content
from tests.features.recommendations.simulated_fleet import START

NOW = START + timedelta(days=30)


@dataclass(frozen=True, slots=True)
class SingleSubject:
    """The hours of one subject. It answers every question with them, whatever the recommendation."""

    start: datetime
    hourly_amounts: Sequence[float | None] | None
    cost: Sequence[float | None]

    def hourly_gpus(self, content: RecommendationContent) -> Sequence[float | None] | None:
        """The amounts of the only subject."""
        return self.hourly_amounts

    def hourly_use_and_cost(self, content: RecommendationContent) -> Sequence[SubjectHour | None]:
        """The hours of the only subject, with one pod per GPU and no observed utilization."""
        pairs = zip(self.hourly_amounts or (), self.cost, strict=True)
        return [None if held is None else SubjectHour(held, usd, held, 0.0) for held, usd in pairs]


def opened(recommendation: RecommendationContent) -> Recommendation:
    return Recommendation(recommendation, "open", START, START, START, version=1)


def weekly(day: float, night: float, days: int = 30) -> list[float | None]:
    """GPUs held by day and by night, and none at weekends."""
    return [
        0.0 if (START + timedelta(hours=hour)).weekday() >= 5 else day if 8 <= hour % 24 < 20 else night
        for hour in range(24 * days)
    ]


def run(
    stored: list[Recommendation], held: Sequence[float | None] | None, contents: list[RecommendationContent]
) -> list[Recommendation]:
    cost = [None if gpus is None else gpus * 2 for gpus in held or []]
    return update_recommendations(
        stored,
        {recommendation.id: recommendation for recommendation in contents},
        SingleSubject(START, held, cost),
        NOW,
    )


def test_id_depends_on_kind_and_subject_only() -> None:
    recommendation = content()
    assert recommendation.id == replace(recommendation, summary="other words", current_gpus=Decimal(9)).id
    assert recommendation.id != content(workload="chat2").id
    assert recommendation.id != content(kind="idle").id
    assert recommendation_id("idle", RecommendationSubject("a", "bc")) != recommendation_id(
        "idle", RecommendationSubject("ab", "c")
    )


def test_repeated_recommendation_stays_open_since_the_first() -> None:
    recommendation = content()
    (new,) = run([], [8.0] * 720, [recommendation])
    assert (new.state, new.first_recommended, new.version) == ("open", NOW, 0)
    (again,) = run([opened(recommendation)], [8.0] * 720, [replace(recommendation, summary="new figures")])
    assert (again.state, again.first_recommended, again.last_recommended) == ("open", START, NOW)
    assert again.content.summary == "new figures"


@pytest.mark.parametrize("hours", [6, 100])
def test_applied_change_is_dated_to_the_hour(hours: int) -> None:
    held: Sequence[float | None] = [8.0] * (720 - hours) + [2.0] * hours
    for contents in ([], [content()]):  # the look-back may or may not show the waste still
        (new,) = run([opened(content())], held, contents)
        assert (new.state, new.applied_at) == ("applied", START + timedelta(hours=720 - hours))
        assert new.verified_usd is None


def test_five_changed_hours_do_not_apply_or_lower_the_saving() -> None:
    """The verified saving is limited by the claimed one, so a change that has begun must not lower the claim."""
    less = replace(content(), saving=replace(content().saving, usd=Decimal(7_900)))
    (new,) = run([opened(content())], [8.0] * 715 + [2.0] * 5, [less])
    assert (new.state, new.content.saving.usd) == ("open", Decimal(10_000))
    (same,) = run([opened(content())], [8.0] * 720, [less])
    assert (same.state, same.content.saving.usd) == ("open", Decimal(7_900))


def test_nights_and_weekends_do_not_count_as_a_change() -> None:
    for days in range(15, 31):
        held = weekly(8.0, 1.0, days)
        assert [recommendation.state for recommendation in run([opened(content())], held, [content()])] == ["open"], (
            days
        )


@pytest.mark.parametrize("end", [24 * 26 + 10, 24 * 26 + 15, 24 * 27 + 20, 24 * 28 + 7])
def test_weekend_is_compared_with_the_weekend_before(end: int) -> None:
    """Day 26 of the simulation is a Saturday: one GPU is held at weekends, eight on working days."""
    days = [1.0 if (START + timedelta(hours=hour)).weekday() >= 5 else 8.0 for hour in range(24 * 30)]
    held: list[float | None] = [*days[:end]]
    assert [recommendation.state for recommendation in run([opened(content())], held, [content()])] == ["open"]
    held[end - 24 : end] = [1.0] * 24
    held[end - 192 : end - 168] = [8.0] * 24
    (new,) = run([opened(content())], held, [])
    assert new.state == "applied", "a week ago the same hours held eight"


def test_change_is_detected_under_a_weekly_pattern() -> None:
    held = weekly(8.0, 1.0, 23) + weekly(2.0, 1.0)[24 * 23 : 24 * 26]
    (new,) = run([opened(content())], held, [])
    assert new.state == "applied"
    assert new.applied_at is not None
    assert START + timedelta(days=22) < new.applied_at <= START + timedelta(days=23, hours=8)


def test_saving_is_verified_over_a_week() -> None:
    held: Sequence[float | None] = [8.0] * (720 - 168) + [2.0] * 168
    (new,) = run([opened(content())], held, [])
    assert new.state == "verified"
    assert new.verified_usd == (16 - 4) * 730, "an hour cost 8 × $2, and costs 2 × $2 now"


def test_hours_without_figures_verify_nothing() -> None:
    held: Sequence[float | None] = [8.0] * (720 - 170) + [2.0] * 100 + [None] * 70
    (new,) = run([opened(content())], held, [])
    assert new.state == "applied"


def test_undone_recommendation_is_open_again() -> None:
    recommendation = replace(opened(content()), state="applied", applied_at=START + timedelta(hours=600))
    (new,) = run([recommendation], [8.0] * 600 + [2.0] * 60 + [8.0] * 60, [content()])
    assert (new.state, new.applied_at) == ("open", None)


def test_removed_idle_workload_counts_as_scaled_to_zero() -> None:
    recommendation = content("idle", then=0)
    (new,) = run([opened(recommendation)], [8.0] * 600 + [0.0] * 120, [])
    assert (new.state, new.applied_at) == ("applied", START + timedelta(hours=600))


def test_added_gpus_are_applied_when_the_workload_holds_them() -> None:
    recommendation = content("add-gpus", now=2, then=4)
    (new,) = run([opened(recommendation)], [2.0] * 700 + [4.0] * 20, [])
    assert new.state == "applied"
    assert run([opened(recommendation)], [2.0] * 720, [recommendation])[0].state == "open"


def test_unsupported_recommendation_is_withdrawn_with_the_reason() -> None:
    (new,) = run([opened(content())], [8.0] * 720, [])
    assert (new.state, new.reason) == ("withdrawn", "newer figures no longer support it")
    for held in (None, [8.0] * 600 + [0.0] * 120):
        (new,) = run([opened(content())], held, [])
        assert (new.state, new.reason) == ("withdrawn", "its subject is gone")
    (back,) = run([new], [8.0] * 720, [content()])
    assert (back.state, back.reason) == ("open", "")


def test_dismissed_recommendation_stays_dismissed_until_reopened() -> None:
    recommendation = dismiss(opened(content()), author="ann", reason=" a demo on Friday ", now=NOW)
    assert (recommendation.state, recommendation.author, recommendation.reason) == (
        "dismissed",
        "ann",
        "a demo on Friday",
    )
    (same,) = run([recommendation], [8.0] * 720, [replace(content(), summary="new figures")])
    assert (same.state, same.reason, same.content.summary) == ("dismissed", "a demo on Friday", "new figures")
    assert not run([recommendation], [8.0] * 720, [])
    assert reopen(recommendation, now=NOW).state == "open"


def test_dismissal_needs_a_reason_and_an_open_recommendation() -> None:
    recommendation = opened(content())
    with pytest.raises(InvalidInputError, match="reason: required"):
        dismiss(recommendation, author="ann", reason=" ", now=NOW)
    with pytest.raises(InvalidInputError, match="only open recommendations"):
        dismiss(replace(recommendation, state="applied"), author="ann", reason="x", now=NOW)
    with pytest.raises(InvalidInputError, match="only dismissed"):
        reopen(recommendation, now=NOW)
