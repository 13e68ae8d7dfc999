"""Instructions of reports on a large fleet, which repeat exactly. Times are for `make bench`."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from benchmarks import large_ledger
from benchmarks.core import instructions
from benchmarks.reports import TABLE, push_settings
from functions.api.app import PAGE_FOLDER
from gpucost.api.app import build_app
from gpucost.container import Container
from gpucost.core.hours import DAY, HOUR, format_timestamp
from gpucost.runtime.aws import register_read_decoder
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table
from tests.functions.api_requests import iam_caller, request_as

pytestmark = pytest.mark.tools

START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - 4 * DAY
HOUR_WITH_LINES = START + 2 * DAY + 23 * HOUR
CLUSTERS, PODS = 2, 800
MARGIN = 1.25
"""Other versions of Python need up to this much more; adding costs row by row, or botocore's parser, takes more."""
PER_HOUR, PER_ROW, PER_POD = 1_340, 530, 1_050
Count = Callable[..., int]


@pytest.fixture(scope="module")
def count(dynamodb_url: str) -> Iterator[Count]:
    """A function that counts the instructions of a report on a period."""
    client = local_client("dynamodb", dynamodb_url, "largefleet")  # its tables are separate from other tests'
    register_read_decoder(client)
    create_table(client, TABLE)
    push_settings(client, CLUSTERS)
    for number in range(CLUSTERS):
        large_ledger.fill(client, TABLE, f"cluster-{number}", START, 2, seed=number)
    hour_record = large_ledger.record("cluster-0", HOUR_WITH_LINES, large_ledger.lines(pods=PODS))
    Ledger(DynamoDBTable(client, TABLE)).publish(
        hour_record, replacing=None, settings_version=1, now=HOUR_WITH_LINES + HOUR
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUCOST_TABLE", TABLE)
        app = build_app(Container(client=lambda _: client).api_services, PAGE_FOLDER)

        def count_instructions(path: str, start: datetime, end: datetime, **query: str) -> int:
            def report() -> None:
                period = {"start": format_timestamp(start), "end": format_timestamp(end)}
                assert (
                    request_as(
                        iam_caller("arn:aws:iam::123456789012:user/u"), path, {**period, **query}, app=app
                    ).status
                    == 200
                )

            report()
            return instructions(report)

        yield count_instructions


def test_hours_of_whole_days_take_few_instructions(count: Count) -> None:
    """Those that read its manifest, because figures of whole days are in rollups."""
    first_day, both_days = (count("/v1/business-units", START, START + number * DAY) for number in (1, 2))
    assert (both_days - first_day) / (24 * CLUSTERS) <= MARGIN * PER_HOUR


def test_rows_of_units_by_hour_take_few_instructions(count: Count) -> None:
    first_hour, three_hours = (
        count("/v1/costs", START, START + number * HOUR, group_by="business_unit") for number in (1, 3)
    )
    assert (three_hours - first_hour) / (2 * large_ledger.UNITS) <= MARGIN * PER_ROW


def test_holders_of_nodes_take_few_instructions(count: Count) -> None:
    nodes, none = (
        count("/v1/nodes", start, start + HOUR, cluster="cluster-0")
        for start in (HOUR_WITH_LINES, HOUR_WITH_LINES - HOUR)
    )
    assert (nodes - none) / PODS <= MARGIN * PER_POD
