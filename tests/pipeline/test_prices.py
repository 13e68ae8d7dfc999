"""Price refreshes with DynamoDB Local and a documented AWS: few calls, idempotent, with retries."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from gpucost.core.amounts import CapacityCosts
from gpucost.core.errors import InvalidInputError
from gpucost.core.hour_record import NodeHour
from gpucost.core.pricing.price_history import PriceChange
from gpucost.core.pricing.prices import InstanceShape
from gpucost.runtime.messages import PricesDue
from gpucost.storage.price_book import PriceStore
from gpucost_devstack.dynamodb_local import create_table
from tests.conftest import DynamoTable
from tests.metered_client import MeteredClient
from tests.prices import DAY, G5, HOUR, MINUTE, NOON, P5, PriceRefresh
from tests.records import record
from tests.sources.aws_prices import Aws, Offer, Point, every, gpus

pytestmark = pytest.mark.tools  # seconds


@pytest.fixture
def aws() -> Aws:
    aws = Aws(page=5)
    aws.points = [
        *every(5, G5, "us-east-1a", NOON - 95 * DAY, " ".join(f"0.{10 + number % 7}" for number in range(456))),
        Point(P5, "us-east-1b", NOON - 30 * DAY, "20"),
        Point(P5, "eu-west-1a", NOON - 30 * DAY, "21"),
    ]
    aws.offers = [Offer(G5, "us-east-1", "1.006"), Offer(P5, "us-east-1", "55.04"), Offer(P5, "eu-west-1", "60")]
    aws.shapes = {G5: gpus(1, 4, 16384), P5: gpus(8, 192, 2097152)}
    return aws


@pytest.fixture
def system(table: DynamoTable, aws: Aws) -> PriceRefresh:
    system = PriceRefresh(table, aws)
    system.push()
    system.rated(NOON - 2 * HOUR, (G5, "us-east-1a"), (P5, "us-east-1b"), (P5, "eu-west-1a"), ("", ""))
    return system


def periods(changes: list[PriceChange]) -> set[tuple[str, datetime | None, datetime]]:
    return {(change.source, change.start, change.end) for change in changes}


def test_types_in_use_are_fetched_once_per_region(system: PriceRefresh) -> None:
    result = system.refresh()
    assert result.failures == []
    assert {refresh.source: refresh.prices_changed for refresh in result.refreshed} == {
        "spot": 3,
        "on-demand": 3,
        "shapes": 2,
    }
    assert system.amounts(NOON) == {
        ("spot", G5, "0.10"),
        ("spot", P5, "20"),
        ("spot", P5, "21"),
        ("on-demand", G5, "1.006"),
        ("on-demand", P5, "55.04"),
        ("on-demand", P5, "60"),
    }
    shapes = system.book.in_force(NOON, NOON + HOUR).shapes
    assert shapes == {G5: InstanceShape(G5, 1, 4, 16384), P5: InstanceShape(P5, 8, 192, 2097152)}
    assert [call for call in system.aws.calls if call[1] == "GetProducts"] == [("us-east-1", "GetProducts")] * 2
    # Hour 11 has just ended and was not sent yet, so it is not a past hour.
    ends = {end for _, _, end in periods(system.book.pending_changes())}
    assert max(ends) == NOON - HOUR


def test_node_without_pods_is_in_use(table: DynamoTable, aws: Aws) -> None:
    system = PriceRefresh(table, aws)
    system.push()
    idle = NodeHour("n", "", "", P5, "on-demand", "us-east-1b", "H100", "", "gpu-bears-all", None, 0, CapacityCosts())
    system.ledger.publish(
        replace(record(hour=NOON - 2 * HOUR), nodes=(idle,)), replacing=None, settings_version=1, now=datetime.now(UTC)
    )
    system.refresh()
    assert system.amounts(NOON) == {("spot", P5, "20"), ("on-demand", P5, "55.04")}


def test_second_refresh_fetches_little_and_writes_nothing(system: PriceRefresh, table: DynamoTable) -> None:
    system.refresh()
    before = table.client.scan(TableName=table.name)["Items"]
    system.aws.calls.clear()
    system.aws.requests.clear()
    watched = MeteredClient(table.client)
    again = PriceRefresh(table, system.aws, watched)
    again.now = NOON + 31 * MINUTE
    result = again.refresh()
    assert [(refresh.prices_changed, refresh.past_prices_changed) for refresh in result.refreshed] == [(0, 0)] * 3
    assert set(watched.calls) <= {"query", "get_item"}
    assert table.client.scan(TableName=table.name)["Items"] == before
    starts = [params["StartTime"] for params in system.aws.requests if "StartTime" in params]
    assert min(starts) >= NOON.replace(hour=0) - 2 * HOUR


def test_price_history_is_fetched_once_for_new_types(system: PriceRefresh) -> None:
    system.refresh("spot")
    first = min(params["StartTime"] for params in system.aws.requests if "StartTime" in params)
    assert first == NOON + MINUTE - 90 * DAY
    for hours in range(1, 89 * 24, 37):
        truth = [point for point in system.aws.points if point.instance_type == G5 and point.at <= NOON - hours * HOUR]
        assert ("spot", G5, max(truth, key=lambda point: point.at).amount) in system.amounts(NOON - hours * HOUR)
    system.aws.points += every(6, "g6.xlarge", "us-east-1a", NOON - 40 * DAY, "0.5 " * 8)
    system.aws.requests.clear()
    system.now += HOUR
    system.rated(NOON - HOUR, ("g6.xlarge", "us-east-1a"))
    system.refresh("spot")
    requested = {
        tuple(params["Filters"][0]["Values"]): params["StartTime"]
        for params in system.aws.requests
        if "StartTime" in params
    }
    assert requested["g6.xlarge",] == system.now - 90 * DAY
    assert requested[G5, P5] >= NOON - 16 * HOUR
    assert ("spot", "g6.xlarge", "0.5") in system.amounts(NOON - 39 * DAY)


def test_new_price_is_logged_for_rated_hours_and_not_for_the_current_hour(system: PriceRefresh) -> None:
    system.refresh()
    for change in system.book.pending_changes():
        system.book.settle(change.id, now=system.now)
    system.rated(NOON - HOUR, (G5, "us-east-1a"))
    system.now = NOON + HOUR + 2 * MINUTE
    system.aws.points += [Point(G5, "us-east-1a", NOON + 20 * MINUTE, "0.5")]
    system.refresh("spot")
    assert system.book.pending_changes() == [], "dispatch sends hour 12 three minutes from now"
    system.now = NOON + HOUR + 4 * MINUTE
    system.aws.points += [Point(G5, "us-east-1a", NOON + 40 * MINUTE, "0.6")]
    system.refresh("spot")
    assert periods(system.book.pending_changes()) == {("spot", NOON + 40 * MINUTE, NOON + HOUR)}


def test_hour_attributed_before_the_schedule_counts_as_rated(system: PriceRefresh) -> None:
    system.refresh()
    pending = len(system.book.pending_changes())
    system.rated(NOON, (G5, "us-east-1a"))
    system.now = NOON + HOUR + MINUTE
    system.aws.points += [Point(G5, "us-east-1a", NOON + 20 * MINUTE, "0.5")]
    system.refresh("spot")
    assert ("spot", NOON + 20 * MINUTE, NOON + HOUR) in periods(system.book.pending_changes())
    assert len(system.book.pending_changes()) == pending + 1


def test_newest_rated_hour_is_that_of_any_cluster(system: PriceRefresh) -> None:
    system.push(("demo", "other"))
    system.rated(NOON - 2 * HOUR, (G5, "us-east-1a"), cluster="other")
    system.refresh()
    system.rated(NOON, (G5, "us-east-1a"))
    system.now = NOON + HOUR + MINUTE
    system.aws.points += [Point(G5, "us-east-1a", NOON + 20 * MINUTE, "0.5")]
    system.refresh("spot")
    assert ("spot", NOON + 20 * MINUTE, NOON + HOUR) in periods(system.book.pending_changes())


@pytest.mark.tools
@pytest.mark.parametrize("days", [1, 3, 20])
def test_missing_hours_are_sent_after_an_outage(system: PriceRefresh, days: int) -> None:
    system.refresh()
    system.now = NOON + days * DAY + MINUTE
    system.aws.points += every(6, G5, "us-east-1a", NOON + HOUR, " ".join(f"0.{number}" for number in range(50, 80)))
    system.refresh()
    for hours in range(2, 24 * days, 7):
        at = NOON + hours * HOUR
        truth = [point for point in system.aws.points if point.instance_type == G5 and point.at <= at]
        assert ("spot", G5, max(truth, key=lambda point: point.at).amount) in system.amounts(at)
        assert ("spot", P5, "20") in system.amounts(at)
    fetched = any(change.start == NOON + HOUR for change in system.book.pending_changes())
    assert fetched, "hours rated with the older price are recorded as changed"


def test_instance_type_no_longer_in_use_is_still_refreshed(system: PriceRefresh) -> None:
    system.refresh()
    system.rated(NOON, (G5, "us-east-1a"))
    system.now = NOON + DAY
    system.aws.points += [Point(P5, "eu-west-1a", NOON + 20 * HOUR, "22")]
    system.aws.offers[2].amount = "58"
    system.refresh()
    assert {("spot", P5, "22"), ("on-demand", P5, "58")} <= system.amounts(NOON + 21 * HOUR)


def test_hourly_refresh_looks_up_only_new_types_in_price_lists(system: PriceRefresh) -> None:
    system.refresh()
    system.aws.calls.clear()
    system.refresh(new_only=True)
    assert {name for _, name in system.aws.calls} == {"DescribeSpotPriceHistory"}
    system.rated(NOON - HOUR, (G5, "eu-west-1a"))
    system.aws.offers += [Offer(G5, "eu-west-1", "1.2")]
    system.aws.requests.clear()
    system.refresh(new_only=True)
    lists = [request for request in system.aws.requests if "ServiceCode" in request]
    assert len(lists) == 1
    assert ("on-demand", G5, "1.2") in system.amounts(NOON)


def test_long_price_history_is_stored_in_parts(system: PriceRefresh, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that ran out of time continues there, and not from the beginning."""
    types = sorted(f"g9.{number}xlarge" for number in range(15))
    system.aws.points += [Point(name, "us-east-1a", NOON - 50 * DAY, "1") for name in types]
    system.rated(NOON - HOUR, *((name, "us-east-1a") for name in types))

    def requested_types() -> list[tuple[list[str], bool]]:
        """Instance types of each chain of requests, and whether their whole history was requested."""
        requests = [
            (request["Filters"][0]["Values"], request["StartTime"] == system.now - 90 * DAY)
            for request in system.aws.requests
            if "StartTime" in request and "NextToken" not in request
        ]
        system.aws.requests.clear()
        return requests

    kept: list[Any] = []

    def until_time_is_out(*arguments: Any, **more: Any) -> Any:
        if kept:
            raise KeyboardInterrupt("timed out")
        kept.append(arguments)
        return PriceStore.merge_prices(system.book, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(system.book, "merge_prices", until_time_is_out)
        with pytest.raises(KeyboardInterrupt):
            system.refresh("spot")
    assert requested_types() == [(types[:10], True), (types[10:], True)]
    system.refresh("spot")
    assert requested_types() == [(types[:10], False), (types[10:], True)]
    assert {kind for _, kind, _ in system.amounts(NOON)} == set(types)


def test_hour_that_cannot_be_read_leaves_other_clusters_refreshed(system: PriceRefresh, table: DynamoTable) -> None:
    system.push(("broken", "demo"))
    system.rated(NOON - 2 * HOUR, (G5, "us-east-1a"), cluster="broken")
    items = table.client.scan(TableName=table.name)["Items"]
    (item,) = (item for item in items if item["pk"] == {"S": "C#broken#hours"})
    table.client.put_item(TableName=table.name, Item={name: item[name] for name in item if name != "s"})
    result = system.refresh()
    assert [failure.split(":")[0] for failure in result.failures] == ["instance types of broken"]
    assert ("on-demand", P5, "55.04") in system.amounts(NOON)


def test_names_that_ec2_cannot_have_are_not_requested(system: PriceRefresh) -> None:
    system.rated(NOON - 2 * HOUR, (G5, "us-east-1a"), ("x" * 300, "us-east-1a"), ("a,b.large", "us-east-1a"))
    result = system.refresh()
    assert result.failures == []
    assert {name for source in result.refreshed for name in source.unlisted_types} == set()


def test_failing_source_leaves_others_refreshed(system: PriceRefresh) -> None:
    system.aws.failing = {"DescribeSpotPriceHistory"}
    result = system.refresh()
    assert [failure.split(":")[0] for failure in result.failures] == [
        "spot prices of eu-west-1",
        "spot prices of us-east-1",
    ]
    assert ("on-demand", G5, "1.006") in system.amounts(NOON)
    system.aws.failing = {"eu-west-1"}
    result = system.refresh()
    assert [failure.split(":")[0] for failure in result.failures] == [
        "spot prices of eu-west-1",
        "shapes prices of eu-west-1",
    ]
    assert ("spot", G5, "0.10") in system.amounts(NOON)


def test_instance_types_that_aws_does_not_list_are_reported(system: PriceRefresh) -> None:
    del system.aws.offers[0]
    refreshed = {refresh.source: refresh for refresh in system.refresh().refreshed}
    assert refreshed["on-demand"].unlisted_types == (f"us-east-1 {G5}",)


def test_disabled_source_is_refused_and_not_fetched(table: DynamoTable, aws: Aws) -> None:
    system = PriceRefresh(table, aws, fetched="on-demand shapes")
    system.push()
    system.rated(NOON - 2 * HOUR, (G5, "us-east-1a"))
    with pytest.raises(InvalidInputError, match="spot is not fetched by this deployment, which fetches: on-demand, sh"):
        system.refresh("spot")
    assert [refresh.source for refresh in system.refresh().refreshed] == ["on-demand", "shapes"]
    assert "DescribeSpotPriceHistory" not in {name for _, name in aws.calls}


def test_nothing_is_done_before_the_first_push(table: DynamoTable, aws: Aws) -> None:
    assert PriceRefresh(table, aws).service.refresh(PricesDue()) is None
    assert aws.calls == []


def test_without_hours_nothing_is_in_use(table: DynamoTable, aws: Aws) -> None:
    system = PriceRefresh(table, aws)
    system.push()
    assert [refresh.prices_changed for refresh in system.refresh().refreshed] == [0, 0, 0]
    assert aws.calls == []


class AwsWithDeadline(Aws):
    """Raises at a chosen call."""

    left = 0

    def _operations(self) -> dict[str, Callable[[str, dict[str, Any]], dict[str, Any]]]:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt("killed")
        return super()._operations()


@pytest.mark.tools
def test_price_book_is_the_same_after_a_crash_at_any_call_and_a_second_run(table: DynamoTable, aws: Aws) -> None:
    mortal = AwsWithDeadline(page=40)
    mortal.points = [point for point in aws.points if point.at > NOON - 16 * DAY or point.instance_type == P5]
    mortal.offers, mortal.shapes = aws.offers, aws.shapes

    def start_over() -> None:
        table.client.delete_table(TableName=table.name)
        create_table(table.client, table.name)
        fresh = PriceRefresh(table, mortal)
        fresh.push()
        fresh.rated(NOON - 2 * HOUR, (G5, "us-east-1a"), (P5, "us-east-1b"), (P5, "eu-west-1a"))

    def book() -> list[Any]:
        items = table.client.scan(TableName=table.name)["Items"]
        price_items = [item for item in items if item["pk"]["S"].startswith("PRICES")]
        return sorted(({name: value for name, value in item.items() if name != "n"} for item in price_items), key=str)

    start_over()
    mortal.left = 0
    watched = MeteredClient(table.client)
    PriceRefresh(table, mortal, watched).refresh()
    after, calls = book(), -mortal.left
    assert calls > 5
    assert len(watched.calls) > 10
    for k in range(1, len(watched.calls) + 1):
        start_over()
        with pytest.raises(KeyboardInterrupt):
            PriceRefresh(table, mortal, MeteredClient(table.client, fail_at=k)).refresh()
        PriceRefresh(table, mortal).refresh()
        assert book() == after, f"call {k} of the table"
    for k in range(1, calls + 1):
        start_over()
        mortal.left = k
        with pytest.raises(KeyboardInterrupt):
            PriceRefresh(table, mortal).refresh()
        mortal.left = 0
        PriceRefresh(table, mortal).refresh()
        assert book() == after, f"call {k} of AWS"
