"""A verified saving is what the change explains: each case by hand, per hour, beside what happened besides."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpucost.features.recommendations.model import RecommendationKind
from gpucost.features.recommendations.verification import SubjectHour, measured_saving
from tests.features.recommendations.rules.test_lifecycle import content

CHANGED = 336
Hours = list[SubjectHour | None]


def hour(held: float, price: float, work: float = 1.0, used: float = 0.0) -> SubjectHour:
    return SubjectHour(held, held * price, work, used)


def measured(
    before: SubjectHour | Hours,
    since: SubjectHour | Hours,
    kind: RecommendationKind = "fewer-gpus",
    claimed: int = 10**6,
    workload_kind: str = "Deployment",
) -> Decimal | None:
    recommendation = content(kind)
    recommendation = replace(
        recommendation,
        saving=replace(recommendation.saving, usd=Decimal(claimed)),
        subject=recommendation.subject._replace(workload_kind=workload_kind),
    )
    old = before if isinstance(before, list) else [before] * CHANGED
    new = since if isinstance(since, list) else [since] * 168
    return measured_saving(recommendation, [*old, *new], CHANGED)


def monthly(usd: float) -> Decimal:
    return Decimal(str(round(usd * 730, 2)))


def test_gpus_given_back_count_at_the_price_of_the_time() -> None:
    """Eight become two, and the price halves the same day: six at $1, not 8 × $2 − 2 × $1."""
    assert measured(hour(8, 2), hour(2, 1)) == 6 * 730
    assert measured(hour(8, 2), hour(8, 1)) == 0, "that GPUs got cheaper is nobody's advice"


def test_no_more_is_verified_than_was_claimed() -> None:
    assert measured(hour(8, 2), hour(2, 2), claimed=5000) == 5000
    assert measured(hour(8, 2), hour(2, 3), claimed=8760) == 8760, "nor because the price rose"


def test_hours_that_no_longer_run_are_not_saved_by_fewer_gpus() -> None:
    """Eight around the clock become two by day and none at night: six are given back in half of the hours."""
    since: Hours = [hour(2, 2) if index % 24 < 12 else hour(0, 0, 0) for index in range(168)]
    assert measured(hour(8, 2), since) == 6 * 2 * 365
    assert measured(hour(8, 2), since, kind="idle", claimed=10**6) == (6 + 8) * 2 * 365, "idle: nothing ran before"


def test_pods_that_no_longer_run_are_not_saved_by_smaller_ones() -> None:
    """Ten pods of a job with eight GPUs become four with two: 4 × 6 are given back, 6 × 8 went with their work."""
    for kind in ("Job", "PyTorchJob"):
        assert measured(hour(80, 1, 10), hour(8, 1, 4), workload_kind=kind) == 24 * 730
    assert measured(hour(10, 1, 10), hour(4 / 7, 1, 4), kind="mig-slice") == monthly(4 - 4 / 7)


def test_nodes_that_went_with_their_pods_are_not_consolidated() -> None:
    for kind in ("consolidate", "mig-geometry", "sharing"):
        assert measured(hour(6, 12, 24), hour(3, 12, 24), kind=kind) == 3 * 12 * 730
        assert measured(hour(6, 12, 24), hour(3, 12, 12), kind=kind) == 0, "half of both went"
        assert measured(hour(6, 12, 24), hour(3, 12, 16), kind=kind) == 1 * 12 * 730, "two thirds need four"


def test_a_schedule_saves_hours_in_which_nothing_ran() -> None:
    """Work by day; then stopped at night, and in the second case by day, too."""
    before: Hours = [hour(2, 1.5, 2, 1.2 if index % 24 < 12 else 0) for index in range(CHANGED)]
    nights: Hours = [hour(2, 1.5, 2, 1.2) if index % 24 < 12 else hour(0, 0, 0) for index in range(168)]
    for since in (nights, [hour(0, 0, 0)] * 168):
        assert measured(before, list(since), kind="off-hours") == 3 * 365


def test_spot_saves_the_price_difference_of_what_still_runs() -> None:
    assert measured(hour(4, 1.5, 4), hour(4, 0.5, 4), kind="spot") == 4 * 730
    assert measured(hour(4, 1.5, 4), hour(3, 0.5, 3), kind="spot") == 3 * 730, "the fourth went"
    assert measured(hour(4, 1.5, 4), hour(9, 0.5, 9), kind="spot") == 4 * 730, "five are new"


def test_added_gpus_verify_as_their_cost_up_to_the_estimate() -> None:
    assert measured(hour(2, 1.5), hour(4, 1.5), kind="add-gpus", claimed=-5000) == -2 * 1.5 * 730
    assert measured(hour(2, 1.5), hour(9, 1.5), kind="add-gpus", claimed=-2190) == -2190


@pytest.mark.parametrize("missing", [None, SubjectHour(2, None, 1, 0)], ids=["no figures", "no price"])
def test_hours_of_which_nothing_is_known_save_nothing_and_cost_nothing(missing: SubjectHour | None) -> None:
    known: Hours = [hour(2, 2)] * 168
    assert measured(hour(8, 2), [*known[:50], *[missing] * 30, *known[50:]]) == 12 * 730
    assert measured(hour(8, 2), [*known[:50], *[missing] * 30, *known[80:]]) is None, "138 hours are no week"
    holes: Hours = [hour(8, 2) if index < 168 else missing for index in range(CHANGED)]
    assert measured(holes, hour(2, 2)) == 12 * 730, "the week before the last one is compared with"


def test_saving_compares_with_the_same_hour_of_the_week() -> None:
    """Eight on working days, one at weekends; two since, on working days alone: 6 × 5 of seven days."""
    before: Hours = [hour(1 if index // 24 % 7 > 4 else 8, 2) for index in range(CHANGED)]
    since: Hours = [hour(1 if index // 24 % 7 > 4 else 2, 2) for index in range(168)]
    assert measured(before, since) == monthly(12 * 5 / 7)
