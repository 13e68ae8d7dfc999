"""A verified saving counts only what the change explains. Each case is computed by hand, per hour."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpucost.features.recommendations.kinds import KindName
from gpucost.features.recommendations.lifecycle import measured_saving
from gpucost.features.recommendations.measuring import SubjectHour
from tests.features.recommendations.sample_recommendations import content

CHANGED = 336
Hours = list[SubjectHour | None]


def hour(held: float, price: float, work: float = 1.0, used: float = 0.0) -> SubjectHour:
    return SubjectHour(held, held * price, work, used)


def measured(
    before: SubjectHour | Hours,
    since: SubjectHour | Hours,
    kind: KindName = "fewer-gpus",
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


def test_released_gpus_count_at_the_current_price() -> None:
    """Eight GPUs become two, and the price halves the same day: the saving is six at $1, not 8 × $2 − 2 × $1."""
    assert measured(hour(8, 2), hour(2, 1)) == 6 * 730
    assert measured(hour(8, 2), hour(8, 1)) == 0, "lower prices are not a saving of the recommendation"


def test_verified_saving_is_at_most_the_claimed_saving() -> None:
    assert measured(hour(8, 2), hour(2, 2), claimed=5000) == 5000
    assert measured(hour(8, 2), hour(2, 3), claimed=8760) == 8760, "a higher price does not raise it"


def test_fewer_gpus_save_nothing_in_hours_without_work() -> None:
    """Eight GPUs around the clock become two by day and none at night: six are released in half of the hours."""
    since: Hours = [hour(2, 2) if index % 24 < 12 else hour(0, 0, 0) for index in range(168)]
    assert measured(hour(8, 2), since) == 6 * 2 * 365
    assert measured(hour(8, 2), since, kind="idle", claimed=10**6) == (6 + 8) * 2 * 365, "idle: nothing ran before"


def test_smaller_pods_save_nothing_for_pods_that_no_longer_run() -> None:
    """Ten pods of a job with eight GPUs become four with two: 4 × 6 are released, 6 × 8 ended with their work."""
    for kind in ("Job", "PyTorchJob"):
        assert measured(hour(80, 1, 10), hour(8, 1, 4), workload_kind=kind) == 24 * 730
    assert measured(hour(10, 1, 10), hour(4 / 7, 1, 4), kind="mig-slice") == monthly(4 - 4 / 7)


def test_nodes_removed_with_their_pods_are_no_consolidation_saving() -> None:
    for kind in ("consolidate", "mig-geometry", "sharing"):
        assert measured(hour(6, 12, 24), hour(3, 12, 24), kind=kind, workload_kind="") == 3 * 12 * 730
        assert measured(hour(6, 12, 24), hour(3, 12, 12), kind=kind, workload_kind="") == 0, (
            "half of nodes and pods are gone"
        )
        assert measured(hour(6, 12, 24), hour(3, 12, 16), kind=kind, workload_kind="") == 1 * 12 * 730, (
            "two thirds of the pods need four nodes"
        )


def test_schedule_saves_hours_without_work() -> None:
    """Work runs by day. Then it is stopped at night, in the second case also by day."""
    before: Hours = [hour(2, 1.5, 2, 1.2 if index % 24 < 12 else 0) for index in range(CHANGED)]
    nights: Hours = [hour(2, 1.5, 2, 1.2) if index % 24 < 12 else hour(0, 0, 0) for index in range(168)]
    for since in (nights, [hour(0, 0, 0)] * 168):
        assert measured(before, list(since), kind="off-hours") == 3 * 365


def test_spot_saves_the_price_difference_of_running_gpus() -> None:
    assert measured(hour(4, 1.5, 4), hour(4, 0.5, 4), kind="spot") == 4 * 730
    assert measured(hour(4, 1.5, 4), hour(3, 0.5, 3), kind="spot") == 3 * 730, "the fourth is gone"
    assert measured(hour(4, 1.5, 4), hour(9, 0.5, 9), kind="spot") == 4 * 730, "five are new"


def test_added_gpus_verify_as_their_cost_up_to_the_estimate() -> None:
    assert measured(hour(2, 1.5), hour(4, 1.5), kind="add-gpus", claimed=-5000) == -2 * 1.5 * 730
    assert measured(hour(2, 1.5), hour(9, 1.5), kind="add-gpus", claimed=-2190) == -2190


@pytest.mark.parametrize("missing", [None, SubjectHour(2, None, 1, 0)], ids=["no figures", "no price"])
def test_hours_without_figures_or_price_do_not_count(missing: SubjectHour | None) -> None:
    priced: Hours = [hour(2, 2)] * 168
    assert measured(hour(8, 2), [*priced[:50], *[missing] * 30, *priced[50:]]) == 12 * 730
    assert measured(hour(8, 2), [*priced[:50], *[missing] * 30, *priced[80:]]) is None, "138 hours are no week"
    with_gaps: Hours = [hour(8, 2) if index < 168 else missing for index in range(CHANGED)]
    assert measured(with_gaps, hour(2, 2)) == 12 * 730, "compares with the week before the gap"


def test_saving_compares_with_the_same_hour_of_the_week() -> None:
    """Eight GPUs on working days become two, and weekends keep one: the saving is 6 × 5 of seven days."""
    before: Hours = [hour(1 if index // 24 % 7 > 4 else 8, 2) for index in range(CHANGED)]
    since: Hours = [hour(1 if index // 24 % 7 > 4 else 2, 2) for index in range(168)]
    assert measured(before, since) == monthly(12 * 5 / 7)
