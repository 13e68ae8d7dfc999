"""The system's cost on AWS, compared with manual calculations."""

from dataclasses import replace

import pytest

from benchmarks import aws_cost, ledger_page
from benchmarks.aws_cost import INFREQUENT_ACCESS, PRICES, Fleet, Measured, monthly, share, stored_gb

MEASURED = Measured(
    write_units_an_hour=1_000,
    read_units_an_hour=200,
    read_units_a_day=4_800,
    write_units_a_day=2_400,
    hour_bytes={"lines": 1_000_000, "hours": 10_000, "days": 1_000},
    day_bytes={"lines": 0, "hours": 240_000, "days": 24_000},
    seconds_an_hour=10,
    samples_an_hour=10**9,
    log_bytes_an_hour=10**6,
    report_read_units=100,
)
SINGLE_CLUSTER = Fleet(clusters=1, reports_a_day=0)


def test_monthly_cost_matches_manual_calculation() -> None:
    cost = monthly(SINGLE_CLUSTER, MEASURED)
    assert cost["dynamodb_write"] == pytest.approx(730 * 1_100 * 0.625e-6), "2,400 a day are 100 an hour"
    assert cost["dynamodb_read"] == pytest.approx(730 * 400 * 0.125e-6)
    # 9,600 hours at 1 MB, and 1,830 days of 24 x 20 KB and 24 x 2 KB
    assert stored_gb(SINGLE_CLUSTER, MEASURED) == pytest.approx(9.6 + 0.8784 + 0.08784)
    assert cost["dynamodb_gb_month"] == pytest.approx(10.56624 * 0.25)
    assert cost["lambda_gb_second"] == pytest.approx(730 * (10 + 3) * 0.0000133334)
    assert cost["amp_sample"] == pytest.approx(73.0)
    assert cost["logs_gb"] == pytest.approx(0.365)
    assert set(cost) == set(PRICES)


def test_pods_and_clusters_add_up() -> None:
    single, three = monthly(SINGLE_CLUSTER, MEASURED), monthly(Fleet(clusters=3, reports_a_day=0), MEASURED)
    third = monthly(Fleet(clusters=3, scale=1 / 3, reports_a_day=0), MEASURED)
    for part in ("dynamodb_write", "dynamodb_read", "dynamodb_gb_month", "amp_sample"):
        assert three[part] == pytest.approx(3 * single[part])
        assert third[part] == pytest.approx(single[part])


def test_free_tier_counts_once() -> None:
    paid, free = monthly(SINGLE_CLUSTER, MEASURED), monthly(SINGLE_CLUSTER, MEASURED, free=True)
    assert free["dynamodb_gb_month"] == 0
    assert free["amp_sample"] == pytest.approx(73 - 20)
    assert free["metric_month"] == pytest.approx(paid["metric_month"] - 3)
    assert free["dynamodb_recovery_gb_month"] == paid["dynamodb_recovery_gb_month"]


def test_infrequent_access_costs_less_storage_and_more_requests() -> None:
    standard, infrequent = (monthly(SINGLE_CLUSTER, MEASURED, prices=prices) for prices in (PRICES, INFREQUENT_ACCESS))
    assert infrequent["dynamodb_gb_month"] == pytest.approx(10.56624 * 0.10)
    assert infrequent["dynamodb_write"] == pytest.approx(standard["dynamodb_write"] * 0.78 / 0.625)
    assert infrequent["dynamodb_recovery_gb_month"] == standard["dynamodb_recovery_gb_month"]
    assert sum(infrequent.values()) < sum(standard.values())


def test_exports_and_daily_functions_are_included() -> None:
    more = replace(MEASURED, daily_gb_seconds=48, export_bytes_a_day=10**6)
    bare, with_more = monthly(SINGLE_CLUSTER, MEASURED), monthly(SINGLE_CLUSTER, more)
    assert with_more["lambda_gb_second"] - bare["lambda_gb_second"] == pytest.approx(730 * 2 * 0.0000133334), (
        "2 an hour"
    )
    tiers = [with_more[f"s3_{tier}gb_month"] for tier in ("", "infrequent_", "archive_")]
    assert tiers == pytest.approx([0.03 * 0.023, 0.06 * 0.0125, 2.467 * 0.004])
    assert with_more["s3_object_month"] == pytest.approx(2 * 2557 * 0.0025 / 1000)


def test_page_matches_measured_units_and_prices() -> None:
    assert aws_cost.page(aws_cost.measured_units()) == aws_cost.PAGE.read_text(), (
        "python -m benchmarks.aws_cost --write"
    )


def test_ledger_page_matches_computed_cost() -> None:
    figures = ledger_page.on_page(ledger_page.PAGE.read_text(), ledger_page.COST)
    assert figures == ledger_page.cost_table(aws_cost.measured_units()[10_000]), "python -m benchmarks.aws_cost --write"


def test_the_bill_is_less_than_a_ten_thousandth_of_the_gpu_spend() -> None:
    for gpus, measured in aws_cost.measured_units().items():
        bill = sum(monthly(Fleet(clusters=1), measured).values())
        assert share(gpus, measured, 2.5) == pytest.approx(bill / (gpus * 730 * 2.5))
        assert bill < gpus * 730 * 2.5 / 10_000
