"""The page about the cost of running gpucost has the figures of the committed measurements."""

from benchmarks.aws_cost import INFREQUENT_ACCESS, Fleet, measured_units, monthly, used
from gpucost_devstack.template import REPOSITORY

PAGE = REPOSITORY / "docs" / "explanation" / "cost-to-run.md"
FLEET = Fleet(clusters=1)
QUANTITIES = {
    "dynamodb_write": ("DynamoDB write request units", "measured"),
    "dynamodb_read": ("DynamoDB read request units", "measured"),
    "dynamodb_gb_month": ("DynamoDB storage, GB; the same again for recovery", "measured"),
    "lambda_gb_second": ("Lambda, GB-seconds", "scaled"),
    "lambda_request": ("Lambda requests", "derived"),
    "sqs_request": ("SQS requests, mostly empty polls", "derived"),
    "sns_publish": ("SNS messages", "derived"),
    "scheduler_invocation": ("EventBridge Scheduler invocations", "derived"),
    "http_api_request": ("API Gateway requests", "derived"),
    "amp_sample": ("AMP query samples processed", "measured"),
    "s3_archive_gb_month": ("S3, GB of exports after 90 days", "scaled"),
    "metric_month": ("CloudWatch metric series", "counted"),
    "alarm_month": ("CloudWatch alarms on metrics", "counted"),
}
SERVICES = {
    "DynamoDB": ("dynamodb_",),
    "Lambda": ("lambda_",),
    "SQS, SNS, Scheduler, API Gateway, logs": ("sqs_", "sns_", "scheduler_", "http_api_", "logs_"),
    "CloudWatch metrics and alarms": ("metric_", "alarm_"),
    "AMP queries": ("amp_",),
    "S3 exports": ("s3_",),
}


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def expected_rows() -> tuple[str, str]:
    """The rows of the two tables, as Markdown."""
    units = [used(FLEET, measured) for measured in measured_units().values()]
    costs = [monthly(FLEET, measured) for measured in measured_units().values()]
    quantities = [
        row(
            title,
            *(f"{unit[name]:,.1f}" if unit[name] < 100 and "gb_" in name else f"{unit[name]:,.0f}" for unit in units),
            origin,
        )
        for name, (title, origin) in QUANTITIES.items()
    ]
    money = [
        row(service, *(f"{sum(part for name, part in cost.items() if name.startswith(names)):.2f}" for cost in costs))
        for service, names in SERVICES.items()
    ]
    free = [monthly(FLEET, measured, free=True) for measured in measured_units().values()]
    infrequent = [monthly(FLEET, measured, prices=INFREQUENT_ACCESS) for measured in measured_units().values()]
    for title, choices in (
        ("**a month**", costs),
        ("with the free tier", free),
        ("with `TableClass=STANDARD_INFREQUENT_ACCESS`", infrequent),
    ):
        money.append(row(title, *(f"{sum(cost.values()):.2f}" for cost in choices)))
    return "\n".join(quantities), "\n".join(money)


def test_page_has_the_figures_of_the_measurements() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for rows in expected_rows():
        assert rows in text, f"replace the rows of docs/explanation/cost-to-run.md by:\n{rows}"


def test_services_add_up_to_the_whole_bill() -> None:
    prefixes = tuple(prefix for names in SERVICES.values() for prefix in names)
    names = next(monthly(FLEET, measured) for measured in measured_units().values())
    assert [name for name in names if not name.startswith(prefixes)] == []


def test_first_paragraph_has_the_rounded_totals() -> None:
    totals = [sum(monthly(FLEET, measured).values()) for measured in measured_units().values()]
    small, medium, large = (f"${total:.0f}" for total in totals)
    text = PAGE.read_text(encoding="utf-8")
    assert f"about {small} a month for 100 GPUs, {medium} for 1,000 GPUs and {large} for 10,000 GPUs" in text
    fixed = next(monthly(FLEET, measured) for measured in measured_units().values())
    assert f"metrics and alarms cost ${fixed['metric_month'] + fixed['alarm_month']:.2f}" in text
